"""Lowering where compilers fail: the operator that one cannot compile is found, taken out, and the rest lowered."""

from __future__ import annotations

from .repartition import Repartitioned, repartition
from .taken import TakenOut

__all__ = ["Repartitioned", "TakenOut", "repartition"]
