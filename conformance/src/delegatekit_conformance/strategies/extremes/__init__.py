"""Extreme sizes and numbers, for every operator: long rows, far offsets, odd channels, ends of arguments."""

from __future__ import annotations

from .table import Extremes, load_extremes

__all__ = ["Extremes", "load_extremes"]
