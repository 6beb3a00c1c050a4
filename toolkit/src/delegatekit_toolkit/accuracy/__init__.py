"""Attainable accuracy: eager in double precision as the oracle, and the bounds that separate right from wrong."""

from __future__ import annotations

from .bounds import ROUNDOFF, Accuracy, Comparison, compare, rounded, shaken, tolerance, widened
from .roundings import estimate, inner_roundings, longest_way, roundings

__all__ = [
    "ROUNDOFF",
    "Accuracy",
    "Comparison",
    "compare",
    "estimate",
    "inner_roundings",
    "longest_way",
    "rounded",
    "roundings",
    "shaken",
    "tolerance",
    "widened",
]
