"""Lets backends refuse plans, and compiles partitions: each becomes a delegate of its backend."""

from __future__ import annotations

from .delegates import ChosenBackend, Delegate, LoweredMethod, Replacement
from .partitions import compile_partitions, lower_partitions
from .plans import graphs_of, is_work, plan_of, refusals
from .program import partition_program

__all__ = [
    "ChosenBackend",
    "Delegate",
    "LoweredMethod",
    "Replacement",
    "compile_partitions",
    "graphs_of",
    "is_work",
    "lower_partitions",
    "partition_program",
    "plan_of",
    "refusals",
]
