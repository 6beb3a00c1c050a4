"""Comparison of eager and a lowered program operator by operator: the first divergence, and a program that shows it."""

from __future__ import annotations

from .compare import compare
from .comparison import Comparison
from .result import Divergence, JudgedPass, Measured, Operator, Output

__all__ = ["Comparison", "Divergence", "JudgedPass", "Measured", "Operator", "Output", "compare"]
