"""Runs blobs with PyTorch. Never imports what compiles."""

from .interpreter import Interpreter
from .runtime import ReferenceRuntime

__all__ = ["Interpreter", "ReferenceRuntime"]
