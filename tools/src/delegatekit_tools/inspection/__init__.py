"""The contents of a file, without running it: methods, delegates and their operators, memory, segments, data."""

from __future__ import annotations

from .insides import Insides, insides
from .inspection import DataInspection, DelegateInfo, Inspection, inspect, inspect_data
from .operators import operator_lines

__all__ = [
    "DataInspection",
    "DelegateInfo",
    "Insides",
    "Inspection",
    "insides",
    "inspect",
    "inspect_data",
    "operator_lines",
]
