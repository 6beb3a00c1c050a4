"""The old name of `delegatekit_toolkit.operator_tables`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api.versions import moved

if not TYPE_CHECKING:
    __getattr__ = moved(__name__)
