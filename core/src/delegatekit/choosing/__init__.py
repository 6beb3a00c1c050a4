"""Choosing the hardware: a table of what each target makes of a model, and placement by measurement."""

from __future__ import annotations

from .row import LeftOut, Row
from .sweep import Sweep, sweep
from .tune import tune

__all__ = ["LeftOut", "Row", "Sweep", "sweep", "tune"]
