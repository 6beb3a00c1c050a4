"""From partitions to what their backends' compilers make of them: here or in other processes, kept in a cache."""

from __future__ import annotations

from .isolation import CompilerDiedError
from .program import assemble
from .result import CheckedResult
from .service import Compiler, Compiling
from .task import Task

__all__ = ["CheckedResult", "Compiler", "CompilerDiedError", "Compiling", "Task", "assemble"]
