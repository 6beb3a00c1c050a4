"""From a model to a lowered program: the list of stages, and what `lower` and `to_backend` return."""

from __future__ import annotations

from .module import LoweredModule
from .program import Content, LoweredProgram
from .stages import PlannedProgram, choose, compiled, lower, plan, to_backend

__all__ = [
    "Content",
    "LoweredModule",
    "LoweredProgram",
    "PlannedProgram",
    "choose",
    "compiled",
    "lower",
    "plan",
    "to_backend",
]
