"""Attainable accuracy: eager in double precision as the oracle, and the bounds that separate right from wrong."""

from __future__ import annotations

from .bounds import ROUNDOFF, Accuracy, Comparison, compare, rounded, shaken, slack, tolerance, widened
from .roundings import estimate, inner_roundings, longest_way, roundings
from .selections import Chosen, Operand, Order, Selection, selection_of

__all__ = [
    "ROUNDOFF",
    "Accuracy",
    "Chosen",
    "Comparison",
    "Operand",
    "Order",
    "Selection",
    "compare",
    "estimate",
    "inner_roundings",
    "longest_way",
    "rounded",
    "roundings",
    "selection_of",
    "shaken",
    "slack",
    "tolerance",
    "widened",
]
