"""The old name of `delegatekit_api.schemes`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._deprecations import moved

if not TYPE_CHECKING:
    __getattr__ = moved(__name__)
