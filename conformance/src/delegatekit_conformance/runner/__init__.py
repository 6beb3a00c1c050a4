"""Runs cases in worker processes with limits of time and memory. A crash or a hang is a verdict; the run continues."""

from __future__ import annotations

from .plan import Limits, Source, select, shard
from .pool import Pool

__all__ = ["Limits", "Pool", "Source", "select", "shard"]
