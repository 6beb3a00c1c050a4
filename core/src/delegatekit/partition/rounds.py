"""Partitions in rounds, until every node is assigned to a backend or a kernel of the runtime.

A backend may keep an operator whole and then refuse it; the runtime has no kernel for some operators, and kernels that
are wrong for some cases. A node taken by neither is decomposed, and the backends are asked about the parts. Graphs of
control flow are partitioned before the graph that calls them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from delegatekit_api import BackendDescription, Partitioner

from ..edge import EdgeMethod
from ..fallback import decompose_nodes, has_row_form, in_place_refusal, refusal, row_updates
from .ask import keep_operators
from .grow import partition
from .plan import Decomposition, PartitionedMethod, PartitionPlan
from .selection import Selection
from .state import StateOwners


@dataclass(frozen=True)
class Asked:
    """The backends of a lowering, from the view of partitioning."""

    #: In priority order.
    partitioners: Mapping[str, Partitioner]
    descriptions: Mapping[str, BackendDescription]
    #: The user's selection.
    selection: Selection
    #: The operators that they want whole.
    keep: frozenset[str]
    #: The buffers that they keep inside their delegates.
    owners: StateOwners
    #: True if each is asked about every node, for explanations.
    every: bool = False

    @classmethod
    def of(
        cls,
        partitioners: Mapping[str, Partitioner],
        descriptions: Mapping[str, BackendDescription],
        selection: Selection,
        *,
        every: bool = False,
    ) -> Asked:
        """The backends, asked which operators they want whole. Raises PluginError when a partitioner raises."""
        owners = StateOwners(partitioners, descriptions)
        wishes = {name: keep_operators({name: partitioner}) for name, partitioner in partitioners.items()}
        return cls(partitioners, descriptions, selection, selection.kept(wishes), owners, every)

    def with_shared(self, buffers: Collection[str]) -> Asked:
        """The same, with the names of the buffers that several methods update."""
        return replace(self, owners=replace(self.owners, shared=buffers))


def settle(edge: EdgeMethod, asked: Asked, stage: Callable[[str], AbstractContextManager[Any]]) -> PartitionedMethod:
    """Partition a method. `stage` is entered with the name of each stage: "partition", or "edge" to decompose.

    Nodes that have neither a backend nor a kernel in the end are left for emission to reject and explanations to show.
    Raises PluginError as `partition` does.
    """
    inner = {call: tuple(settle(region, asked, stage) for region in regions) for call, regions in edge.regions.items()}
    settled = {id(region.edge): region for regions in inner.values() for region in regions}
    found = [item for region in settled.values() for item in region.decompositions]
    edge = replace(edge, regions={call: tuple(region.edge for region in regions) for call, regions in inner.items()})
    for number in itertools.count(1):
        with stage("partition"):
            selected = asked.selection.partitioners(edge, asked.partitioners, asked.descriptions)
            plan = partition(edge, selected, descriptions=asked.descriptions, owners=asked.owners, ask_all=asked.every)
        stranded = {node: reason for node in plan.fallback if (reason := refusal(node)) is not None}
        # A node that a backend takes only together with others waits for the next round, which may bring these.
        stranded = {node: reason for node, reason in stranded.items() if not _is_taken(node, plan)} or stranded
        if number == 1:
            stranded.update(_misfits(edge, plan))
        if not stranded:
            break
        with stage("edge"):
            decomposed = decompose_nodes(edge, stranded, keep=asked.keep)
        if not decomposed.became:
            break
        found.extend(
            Decomposition(number, node, plan.verdicts[node], stranded[node], became)
            for node, became in decomposed.became.items()
        )
        edge = decomposed.edge.verified()
    plans = {call: tuple(settled[id(region)].plan for region in regions) for call, regions in edge.regions.items()}
    return PartitionedMethod(edge, replace(plan, regions=plans), tuple(found))


def _is_taken(node: Node, plan: PartitionPlan) -> bool:
    """True if a backend takes a node, even if only together with others."""
    return any(verdict.supported for verdict in plan.verdicts[node].values())


def _misfits(edge: EdgeMethod, plan: PartitionPlan) -> dict[Node, str]:
    """The updates of buffers' rows that the runtime writes in place only in another form, and the reasons."""
    updates = row_updates(edge)
    return {
        node: reason
        for node in plan.fallback
        if node in updates and has_row_form(node) and (reason := in_place_refusal(node, edge.constants)) is not None
    }
