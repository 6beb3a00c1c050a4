"""What partitioning makes: partitions, and who computes what in which order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch.fx import Node

from delegatekit_api import Verdict
from delegatekit_toolkit.passes import Change

from ..edge import EdgeMethod


@dataclass(frozen=True)
class Partition:
    """Nodes that one delegate computes."""

    backend: str
    #: In the order of the graph.
    nodes: tuple[Node, ...]
    #: Tensors from outside, in order of first use: constants are not among them, nor sizes, which are computed anew.
    inputs: tuple[Node, ...]
    #: Known values from outside, in order of first use.
    constants: tuple[Node, ...]
    #: Values that something outside uses, in the order of the graph.
    outputs: tuple[Node, ...]
    #: Buffers that the delegate keeps inside itself and updates.
    buffers: tuple[Node, ...] = ()


@dataclass(frozen=True)
class PartitionPlan:
    """Who computes what, and in which order."""

    #: Fallback nodes and partitions, each after everything it depends on.
    steps: tuple[Node | Partition, ...]
    #: Every call_function node -> backend name -> that backend's answer. A backend after the taker is not asked.
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
    #: Backend -> its answer about the whole node.
    verdicts: Mapping[str, Verdict]
    #: Why the runtime cannot run it.
    refusal: str
    #: The nodes of the next round that it became; none where what it became was there already.
    became: tuple[Node, ...]


@dataclass(frozen=True)
class PartitionedMethod:
    """A method in the edge dialect, and who computes what of it."""

    edge: EdgeMethod
    plan: PartitionPlan
    #: What was decomposed on the way, round by round; that of control flow first.
    decompositions: tuple[Decomposition, ...] = ()
    #: What passes changed before it was partitioned.
    changes: tuple[Change, ...] = ()
