"""Placement by measurement: each piece of a program is timed on the backends that run here, and the fastest is kept."""

from __future__ import annotations

from ..plugins.discovery import AUTO
from .auto import CLOCKS, best, is_auto, measure
from .measurements import Candidate, Measurements, Tuned

__all__ = ["AUTO", "CLOCKS", "Candidate", "Measurements", "Tuned", "best", "is_auto", "measure"]
