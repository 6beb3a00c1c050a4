"""A table of a model's results on each target of several backends."""

from __future__ import annotations

from .row import LeftOut, Row
from .sweep import Sweep, sweep

__all__ = ["LeftOut", "Row", "Sweep", "sweep"]
