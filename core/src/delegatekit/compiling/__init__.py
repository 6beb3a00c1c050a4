"""Compiles partitions with their backends: here or in other processes, with a cache of the results."""

from __future__ import annotations

from .cache import Cache
from .isolation import CompilerDiedError
from .program import assemble
from .result import CheckedResult
from .service import Compiler, Compiling
from .task import Task

__all__ = ["Cache", "CheckedResult", "Compiler", "CompilerDiedError", "Compiling", "Task", "assemble"]
