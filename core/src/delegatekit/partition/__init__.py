"""Partitioning: asks the backends about each node and groups what they take."""

from __future__ import annotations

from .ask import ask_backends, keep_operators
from .grow import partition
from .plan import Partition, PartitionedMethod, PartitionPlan

__all__ = ["Partition", "PartitionPlan", "PartitionedMethod", "ask_backends", "keep_operators", "partition"]
