"""Runs blobs with PyTorch. Never imports the compiling modules."""

from .interpreter import Interpreter
from .runtime import ReferenceRuntime

__all__ = ["Interpreter", "ReferenceRuntime"]
