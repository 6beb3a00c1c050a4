"""Partitioning: asks the backends about each node, groups the taken ones, and decomposes what nothing can run."""

from __future__ import annotations

from .ask import ask_backends, keep_operators
from .assembly import assemble
from .assigned import PartitionFunction
from .foreign_sizes import lost_in_set
from .grow import partition
from .placement import Placement
from .plan import Decomposition, Partition, PartitionedMethod, PartitionPlan
from .rounds import Asked, settle
from .selection import Selection, Selectors
from .state import StateOwners

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
    "StateOwners",
    "ask_backends",
    "assemble",
    "keep_operators",
    "lost_in_set",
    "partition",
    "settle",
]
