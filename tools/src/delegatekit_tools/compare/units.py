"""A graph as the smallest runs of nodes that can be lowered by themselves: mostly one operator each.

Nodes that belong together stay together: an operator and the `getitem`s of its results, a quantized layer with the
conversions around it, and nodes that a backend takes only as a group.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch.fx import Node

from delegatekit.edge import EdgeMethod, is_size, is_size_node
from delegatekit.partition import PartitionPlan
from delegatekit_api.nodes import operator_name

#: The number of operators between a dequantize and a quantize that are searched for a layer: it, and fused ones.
_LAYER: Final = 4


@dataclass(frozen=True)
class Unit:
    """Nodes that are lowered together, in the order of the graph."""

    nodes: tuple[Node, ...]
    #: The plan's partition that they are part of; None: the runtime's own operators compute them.
    partition: int | None

    @property
    def last(self) -> Node:
        """The node that gives the unit its name: the last one that computes something and is no conversion."""
        work = [node for node in self.nodes if node.target is not operator.getitem]
        return next((node for node in reversed(work) if not is_conversion(node)), work[-1])


def units_of(edge: EdgeMethod, plan: PartitionPlan) -> list[Unit]:
    """The units of a graph, ordered by their first node. Nodes that compute sizes are in none: they are repeated."""
    nodes = [node for node in edge.graph.nodes if node.op == "call_function" and not is_size_node(node)]
    home = {node: number for number, part in enumerate(plan.partitions) for node in part.nodes}
    sets = _Sets(nodes)
    for node in nodes:
        for other in _companions(node, plan):
            if other in sets and home.get(other) == home.get(node):
                sets.join(node, other)
    return [Unit(tuple(found), home.get(found[0])) for found in sets.all()]


def joined(units: Sequence[Unit], edge: EdgeMethod, refused: Iterable[Node]) -> list[Unit]:
    """The units, with those of refused nodes joined to adjacent units of the same partition.

    A unit without such a neighbor stays as it is.
    """
    unit_of = {node: unit for unit in units for node in unit.nodes}
    sets = _Sets([node for node in edge.graph.nodes if node in unit_of])
    for unit in units:
        for node in unit.nodes[1:]:
            sets.join(unit.nodes[0], node)
    for node in refused:
        unit = unit_of[node]
        readers = [user for member in unit.nodes for user in member.users]
        sources = [source for member in unit.nodes for source in member.all_input_nodes]
        for neighbors in (sources, readers):
            near = [n for n in neighbors if n in unit_of and unit_of[n] is not unit]
            near = [n for n in near if unit_of[n].partition == unit.partition]
            if near:
                sets.join(node, near[-1])
                break
    return [Unit(tuple(found), unit_of[found[0]].partition) for found in sets.all()]


def is_quantize(node: Node) -> bool:
    """True if a node makes integers of numbers."""
    name = operator_name(node)
    return "quantize_" in name and "dequantize_" not in name and "choose" not in name


def is_dequantize(node: Node) -> bool:
    """True if a node makes numbers of integers."""
    return "dequantize_" in operator_name(node)


def is_conversion(node: Node) -> bool:
    """True if a node only converts between numbers and integers, or gives the parameters."""
    return is_quantize(node) or is_dequantize(node) or "choose_qparams" in operator_name(node)


def _companions(node: Node, plan: PartitionPlan) -> Iterable[Node]:
    """The nodes that must be lowered together with a node."""
    yield from _group(node, plan)
    if node.target is operator.getitem or is_size(node.meta.get("val")):
        # A number that is read out of a tensor cannot be passed between pieces.
        yield from (node.args[0],) if isinstance(node.args[0], Node) else ()
        yield from node.users if is_size(node.meta.get("val")) else ()
    if is_dequantize(node):
        yield from node.users
        yield from (item for item in node.all_input_nodes if is_quantize(item) and _computed(item))
    if is_quantize(node):
        if _computed(node):  # with dynamic scales
            yield from node.all_input_nodes[1:]
            yield from node.users
        else:
            yield from _layer_before(node)


def _group(node: Node, plan: PartitionPlan) -> Iterable[Node]:
    verdicts: Mapping[str, Any] = plan.verdicts.get(node, {})
    taken = verdicts.get(plan.taker.get(node, ""))
    return taken.group if taken is not None else ()


def _computed(quantize: Node) -> bool:
    """True if the parameters are computed in the graph."""
    return any(item.op == "call_function" for item in quantize.all_input_nodes[1:])


def _layer_before(quantize: Node) -> list[Node]:
    """The operators between the dequantizes that a layer reads and the quantize of its result."""
    found: list[Node] = []
    node = quantize.all_input_nodes[0]
    while node.op == "call_function" and len(found) < _LAYER:
        found.append(node)
        if any(is_dequantize(item) for item in node.all_input_nodes):
            return found
        before = [item for item in node.all_input_nodes if item.op == "call_function"]
        if len(before) != 1 or len(before[0].users) != 1:
            break
        node = before[0]
    return found[:1]


class _Sets:
    """Disjoint sets of nodes, to be joined."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._position = {node: index for index, node in enumerate(nodes)}
        self._parent = {node: node for node in nodes}

    def __contains__(self, node: object) -> bool:
        return node in self._parent

    def join(self, first: Node, second: Node) -> None:
        """Make one set of the sets of two nodes."""
        one, two = self._root(first), self._root(second)
        self._parent[one if self._position[one] > self._position[two] else two] = min(
            one, two, key=self._position.__getitem__
        )

    def all(self) -> list[list[Node]]:
        """The sets, each in the order of the nodes, ordered by their first."""
        found: dict[Node, list[Node]] = {}
        for node in self._position:
            found.setdefault(self._root(node), []).append(node)
        return sorted(found.values(), key=lambda members: self._position[members[0]])

    def _root(self, node: Node) -> Node:
        while self._parent[node] is not node:
            self._parent[node] = self._parent[self._parent[node]]
            node = self._parent[node]
        return node
