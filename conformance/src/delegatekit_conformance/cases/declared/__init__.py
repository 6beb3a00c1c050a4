"""What a backend declares, judged: the limits of declarations, quantization beside a textbook's, what is told beside
what is."""

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
