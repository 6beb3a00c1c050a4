"""The Python engine: loads a .pte, checks it, and runs its methods with ATen kernels and the plugins' runtimes."""

from __future__ import annotations

from .method import Method
from .program import LoadedProgram, Session, load

__all__ = ["LoadedProgram", "Method", "Session", "load"]
