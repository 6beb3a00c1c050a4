"""Lets backends refuse plans, and compiles partitions: each becomes a delegate of its backend."""

from __future__ import annotations

from .delegates import ChosenBackend, Delegate, LoweredMethod, Replacement
from .partitions import compile_partitions, lower_partitions
from .plans import graphs_of, is_work, plan_of, refusals
from .program import partition_program
from .shares import ONLY_TOGETHER, LeftOut, Share, Shares, check_minimum, parse_minimum, reasons_left, shares_of

__all__ = [
    "ONLY_TOGETHER",
    "ChosenBackend",
    "Delegate",
    "LeftOut",
    "LoweredMethod",
    "Replacement",
    "Share",
    "Shares",
    "check_minimum",
    "compile_partitions",
    "graphs_of",
    "is_work",
    "lower_partitions",
    "parse_minimum",
    "partition_program",
    "plan_of",
    "reasons_left",
    "refusals",
    "shares_of",
]
