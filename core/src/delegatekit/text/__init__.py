"""Formatting of numbers and foreign texts for people."""

from __future__ import annotations

from .foreign import indented, one_line, one_lined, visible
from .numbers import BYTES, human_size, human_time, with_unit

__all__ = [
    "BYTES",
    "human_size",
    "human_time",
    "indented",
    "one_line",
    "one_lined",
    "visible",
    "with_unit",
]
