"""Checks of a backend's declarations: their limits, quantization against a textbook's, reports against
facts."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from ..base import Case

#: The modules with cases, in the order of reports.
_ROOMS = ("limits", "told", "quality", "arguments")


def cases() -> Iterator[Case]:
    """All of them."""
    for room in _ROOMS:
        yield from import_module(f"{__name__}.{room}").cases()
