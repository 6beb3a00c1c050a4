"""Compiles partitions: each becomes a delegate of its backend."""

from __future__ import annotations

from .delegates import ChosenBackend, Delegate, LoweredMethod
from .partitions import lower_partitions
from .program import partition_program

__all__ = ["ChosenBackend", "Delegate", "LoweredMethod", "lower_partitions", "partition_program"]
