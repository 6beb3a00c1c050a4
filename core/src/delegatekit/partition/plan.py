"""The result of partitioning: partitions, and the assignment and order of all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.fx import Node

from delegatekit_api import Verdict
from delegatekit_toolkit.passes import Change

from ..edge import EdgeMethod


@dataclass(frozen=True)
class Partition:
    """The nodes that one delegate computes."""

    backend: str
    #: In the order of the graph.
    nodes: tuple[Node, ...]
    #: Tensors from outside, in order of first use, without sizes, which are recomputed; of constants those that the
    #: backend wants as inputs.
    inputs: tuple[Node, ...]
    #: All other constants from outside, in order of first use.
    constants: tuple[Node, ...]
    #: Values used outside, in the order of the graph.
    outputs: tuple[Node, ...]
    #: Buffers that the delegate keeps inside itself and updates.
    buffers: tuple[Node, ...] = ()


@dataclass(frozen=True)
class PartitionPlan:
    """The assignment of nodes to delegates and the runtime, and their order."""

    #: Fallback nodes and partitions, each after everything it depends on.
    steps: tuple[Node | Partition, ...]
    #: Every call_function node -> backend name -> that backend's verdict. A backend after the taker is not asked.
    verdicts: Mapping[Node, Mapping[str, Verdict]]
    #: Node -> the backend that computes it; fallback nodes are absent.
    taker: Mapping[Node, str] = field(default_factory=dict)
    #: Call of a control flow operator -> the plans of its graphs.
    regions: Mapping[Node, tuple[PartitionPlan, ...]] = field(default_factory=dict)

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions in execution order."""
        return tuple(step for step in self.steps if isinstance(step, Partition))

    @property
    def fallback(self) -> tuple[Node, ...]:
        """The nodes that the runtime's own operators compute, in execution order."""
        return tuple(step for step in self.steps if isinstance(step, Node))

    @property
    def owned_buffers(self) -> frozenset[Node]:
        """Buffers that a delegate keeps inside itself."""
        return frozenset(buffer for partition in self.partitions for buffer in partition.buffers)


@dataclass(frozen=True)
class Decomposition:
    """A node that was decomposed because no backend took it and the runtime cannot run it."""

    #: The round of partitioning in which it was refused, counted from 1.
    round: int
    node: Node
    #: Backend -> its verdict on the whole node.
    verdicts: Mapping[str, Verdict]
    #: The reason why the runtime cannot run it.
    refusal: str
    #: The nodes of the next round that it became; none if these existed already.
    became: tuple[Node, ...]


@dataclass(frozen=True)
class PartitionedMethod:
    """A method in the edge dialect, and its partition plan."""

    edge: EdgeMethod
    plan: PartitionPlan
    #: The decomposed nodes, round by round; those of control flow first.
    decompositions: tuple[Decomposition, ...] = ()
    #: The changes made by passes before partitioning.
    changes: tuple[Change, ...] = ()
