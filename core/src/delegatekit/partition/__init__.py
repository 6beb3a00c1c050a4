"""Partitioning: asks the backends about each node, groups what they take, and decomposes what nothing can run."""

from __future__ import annotations

from .ask import ask_backends, keep_operators
from .assigned import PartitionFunction
from .grow import partition
from .placement import Placement
from .plan import Decomposition, Partition, PartitionedMethod, PartitionPlan
from .selection import Selection, Selectors
from .settle import Asked, settle

__all__ = [
    "Asked",
    "Decomposition",
    "Partition",
    "PartitionFunction",
    "PartitionPlan",
    "PartitionedMethod",
    "Placement",
    "Selection",
    "Selectors",
    "ask_backends",
    "keep_operators",
    "partition",
    "settle",
]
