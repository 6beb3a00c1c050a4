"""Placement by measurement: each piece of a program is timed on the backends that run here, and the fastest is kept."""

from __future__ import annotations

from .measurements import Candidate, Measurements, Tuned
from .measuring import CLOCKS
from .tune import placement, tune

__all__ = ["CLOCKS", "Candidate", "Measurements", "Tuned", "placement", "tune"]
