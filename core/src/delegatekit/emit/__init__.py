"""From lowered methods to the image of a .pte file: values, instructions, and a memory plan for each method."""

from __future__ import annotations

from .arena import MemoryOptions, PlacedValue, PlannedSpace, PlannedValue
from .external import External
from .file import Emitted, emit, owner_of
from .memory import MemoryPlan, Request, largest_load, loads, plan_memory
from .shared import FileOptions

__all__ = [
    "Emitted",
    "External",
    "FileOptions",
    "MemoryOptions",
    "MemoryPlan",
    "PlacedValue",
    "PlannedSpace",
    "PlannedValue",
    "Request",
    "emit",
    "largest_load",
    "loads",
    "owner_of",
    "plan_memory",
]
