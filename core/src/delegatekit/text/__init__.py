"""How numbers, estimates, tables, pages and the texts of others are written for people."""

from __future__ import annotations

from .estimates import layer_lines, summary
from .foreign import indented, one_line, one_lined, visible
from .numbers import BYTES, human_size, human_time, with_unit
from .policy import content_policy
from .table import aligned

__all__ = [
    "BYTES",
    "aligned",
    "content_policy",
    "human_size",
    "human_time",
    "indented",
    "layer_lines",
    "one_line",
    "one_lined",
    "summary",
    "visible",
    "with_unit",
]
