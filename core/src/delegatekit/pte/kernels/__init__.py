"""The stock runtime's kernels by name: all of them, those that may overwrite an operand, those that return numbers."""

from __future__ import annotations

from .in_place import IN_PLACE
from .names import library_of, runtime_operators
from .numbers import NUMBERS, PRIMITIVE_OF

__all__ = ["IN_PLACE", "NUMBERS", "PRIMITIVE_OF", "library_of", "runtime_operators"]
