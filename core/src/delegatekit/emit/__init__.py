"""From lowered methods to the image of a .pte file: out-variants, memory plan, values and instructions."""

from __future__ import annotations

from .arena import ArenaReport, MemoryOptions, PlannedValue
from .emit import Emitted, emit
from .external import External
from .memory import MemoryPlan, Request, plan_memory
from .variants import OutVariant, kernel_limit, kernel_of, out_variant

__all__ = [
    "ArenaReport",
    "Emitted",
    "External",
    "MemoryOptions",
    "MemoryPlan",
    "OutVariant",
    "PlannedValue",
    "Request",
    "emit",
    "kernel_limit",
    "kernel_of",
    "out_variant",
    "plan_memory",
]
