"""A table of what each target of several backends makes of a model."""

from __future__ import annotations

from .row import LeftOut, Row
from .sweep import Sweep, sweep

__all__ = ["LeftOut", "Row", "Sweep", "sweep"]
