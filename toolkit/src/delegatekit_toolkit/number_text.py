"""Formatting and parsing of numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

#: Units of sizes, in lower case, in bytes.
BYTES: Final = {"b": 1, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20, "gb": 1 << 30, "gib": 1 << 30}


def with_unit(text: str, units: Mapping[str, float]) -> float | None:
    """The number of a text such as "512KB" or "20 ms", in units of 1; None if it is not a number."""
    match = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", text.lower())
    try:
        if match is not None and (not match[2] or match[2] in units):
            return float(match[1]) * units.get(match[2], 1)
    except ValueError:
        pass
    return None


def human_size(size: int) -> str:
    """A number of bytes: "12 B", "1.5 KiB", "3.0 GiB"."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def human_time(seconds: float) -> str:
    """A time: "24.62 ms", "1.20 s"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= scale:
            return f"{seconds / scale:.2f} {unit}"
    return f"{seconds / 1e-6:.2f} us"
