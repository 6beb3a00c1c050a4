"""From lowered methods to the image of a .pte file: values, instructions, and a memory plan for each method."""

from __future__ import annotations

from .arena import ArenaReport, MemoryOptions, PlacedValue, PlannedValue
from .external import External
from .file import Emitted, emit
from .memory import MemoryPlan, Request, loads, plan_memory
from .shared import FileOptions

__all__ = [
    "ArenaReport",
    "Emitted",
    "External",
    "FileOptions",
    "MemoryOptions",
    "MemoryPlan",
    "PlacedValue",
    "PlannedValue",
    "Request",
    "emit",
    "loads",
    "plan_memory",
]
