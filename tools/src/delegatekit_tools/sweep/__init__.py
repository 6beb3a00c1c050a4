"""A table of a model's results on each target of several backends."""

from __future__ import annotations

from .row import LeftOut, OutputErrors, Row
from .sweep import Sweep, sweep

__all__ = ["LeftOut", "OutputErrors", "Row", "Sweep", "sweep"]
