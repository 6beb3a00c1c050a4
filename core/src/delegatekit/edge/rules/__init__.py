"""The rules of the edge dialect: how operators are rewritten into one spelling per meaning."""

from __future__ import annotations

from . import attention, composites, normalization, pooling, promotion, quantization  # noqa: F401  (they register rules)
from .general import CHECKS, RULES

__all__ = ["CHECKS", "RULES"]
