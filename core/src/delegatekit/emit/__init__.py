"""From lowered methods to the image of a .pte file: out-variants, memory plan, values and instructions."""

from __future__ import annotations

from .arena import ArenaReport, MemoryOptions, PlannedValue
from .emit import Emitted, emit
from .external import External
from .memory import MemoryPlan, Request, plan_memory

__all__ = [
    "ArenaReport",
    "Emitted",
    "External",
    "MemoryOptions",
    "MemoryPlan",
    "PlannedValue",
    "Request",
    "emit",
    "plan_memory",
]
