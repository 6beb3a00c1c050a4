"""Runs cases in worker processes with limits of time and memory. A crash or a hang is a verdict; the run continues."""

from __future__ import annotations

from .boards import NoBoardError
from .plan import Limits, Source, select, shard
from .pool import Pool

__all__ = ["Limits", "NoBoardError", "Pool", "Source", "select", "shard"]
