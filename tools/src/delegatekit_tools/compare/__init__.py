"""Eager and lowered program side by side, operator by operator: who diverges first, and what shows it alone."""

from __future__ import annotations

from .compare import compare
from .comparison import Comparison
from .result import Divergence, Measured, Operator, Output

__all__ = ["Comparison", "Divergence", "Measured", "Operator", "Output", "compare"]
