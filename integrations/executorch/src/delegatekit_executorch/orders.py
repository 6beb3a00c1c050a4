"""Orders: groups of stock nodes, each planned to become one delegate.

The core plans the whole graph, `groups` maps the plan to stock's nodes, and each group is planned again as the program
that stock will hand over. What would not become one delegate with the inputs and outputs that stock calls it with, is
left outside of it, with the reason, before anything is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import is_size_node
from delegatekit.lowering import ChosenBackend, is_work
from delegatekit.partition import Partition, PartitionedMethod
from delegatekit.pipeline import choose, plan
from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import describe_node

from .groups import Homes, Units
from .readings import OUTSIDE, Reading, Source, is_contiguous, is_number, read_all, read_part

#: Why a unit is left that is no operator.
CLOSED = "it is a delegate already, or control flow"
UNNEEDED = "no delegate needs it"
#: Why a unit is left that the backend would take.
TOGETHER = "taken only together with other operators"


@dataclass(frozen=True)
class Backend:
    """A backend with the options that the user gave."""

    name: str
    options: Mapping[str, Any]

    def plan(self, reading: Reading) -> PartitionedMethod:
        """The program, planned. Raises UnsupportedError for what cannot be read, or what the backend refuses whole."""
        planned = plan({"forward": reading.program}, backends=[self.name], options={self.name: self.options})
        for error in planned.refused:
            raise error
        return planned.methods["forward"]

    def chosen(self) -> ChosenBackend:
        """The backend, loaded. Raises PluginError, OptionError."""
        return choose([self.name], {self.name: self.options})[self.name]


@dataclass(frozen=True, eq=False)
class Order:
    """A delegate to be compiled."""

    backend: Backend
    #: The stock nodes, in order.
    nodes: tuple[Node, ...]
    reading: Reading
    method: PartitionedMethod
    #: Names of stock's calls -> the names of the nodes that they read, in order.
    arguments: Mapping[str, tuple[str, ...]]
    #: Names of stock's nodes -> the values that the delegate takes or gives.
    inputs: Mapping[str, Node]
    outputs: Mapping[str, Node]
    #: Buffers that it keeps.
    owned: tuple[Node, ...] = ()

    @property
    def partition(self) -> Partition:
        """The one partition."""
        (found,) = self.method.plan.partitions
        return found

    def called_with(self, inputs: Sequence[str], outputs: Sequence[str]) -> PartitionedMethod:
        """The same with the inputs and outputs in this order."""
        given = tuple(self.inputs[name] for name in inputs)
        returned = tuple(self.outputs[name] for name in outputs)
        partition = replace(self.partition, inputs=given, outputs=returned)
        return replace(self.method, plan=replace(self.method.plan, steps=(partition,)))

    def debug_handles(self, handles: Sequence[int]) -> tuple[int, ...]:
        """Stock's debug handles of positions in the program."""
        known = (self.reading.origins[handle - 1].meta.get("debug_handle") for handle in handles)
        return tuple(dict.fromkeys(handle for handle in known if isinstance(handle, int)))


@dataclass(frozen=True)
class Study:
    """A graph with the core's plan for all of it."""

    source: Source
    backend: str
    reading: Reading
    method: PartitionedMethod
    #: Call that the core cannot read -> why.
    refused: Mapping[Node, str]

    @classmethod
    def of(cls, source: Source, backend: Backend) -> Study:
        """The graph, planned; calls that the core cannot read are outside. Raises UnsupportedError."""
        refused: dict[Node, str] = {}
        named = {node.name: node for node in source.calls}
        while True:
            reading = read_all(source, refused)
            try:
                return cls(source, backend.name, reading, backend.plan(reading), refused)
            except UnsupportedError as error:
                found = [named[name] for name in re.findall(r"\((\w+)\)", error.where or "") if name in named]
                if not found or found[0] in refused:
                    raise
                refused[found[0]] = error.what

    @cached_property
    def units(self) -> Units:
        """The units of the graph."""
        return Units(self.source.calls)

    @cached_property
    def homes(self) -> Homes:
        """Their partitions by the plan."""
        return homes_of(self.units, self.reading, self.method, self.backend)

    def origin(self, node: Node) -> Node:
        """The stock node of a node of the plan."""
        position: int = node.meta["debug_handle"]
        return self.reading.origins[position - 1]


@dataclass(frozen=True)
class Ordered:
    """The orders for a graph, and what is left."""

    orders: tuple[Order, ...]
    #: Call -> why it is in none.
    left: Mapping[Node, str]
    study: Study


def ordered(source: Source, backend: Backend, shared: Collection[str] = ()) -> Ordered:
    """The delegates of a backend in a graph. `shared` are buffers that no delegate may keep."""
    return _Ordering(source, backend, shared).run()


def taken_whole(study: Study) -> set[Node]:
    """The calls of a graph that the backend computes, each in one delegate and not as a passenger only."""
    units, homes = study.units, study.homes
    real = {
        study.origin(node)
        for node, answers in study.method.plan.verdicts.items()
        if study.backend in answers and answers[study.backend].supported and not answers[study.backend].passenger
    }
    bent = {units.root[node] for members in homes.groups() for node in _bent(members, study.source)}
    return {unit for unit in homes.known if unit not in bent and not real.isdisjoint(units.members[unit])}


def _bent(members: Sequence[Node], source: Source) -> Iterator[Node]:
    """Calls of a group with tensors at its border that are not contiguous, as those of composites that return views."""
    inside = set(members)
    known = inside | source.constants.keys()
    for node in members:
        border = [item for item in node.all_input_nodes if item not in known]
        if any(user not in inside for user in node.users):
            border.append(node)
        values = (item.meta["val"] for item in border)
        if any(isinstance(value, torch.Tensor) and not is_contiguous(value) for value in values):
            yield node


def order_of_program(source: Source, backend: Backend) -> Order:
    """An order for a whole program. Raises UnsupportedError if it would not become one delegate."""
    owned = tuple(source.buffers)
    found = _Ordering(source, backend, ()).check(source.calls, owned)
    if isinstance(found, Order):
        return found
    node, reason = next(iter(found.left.items()), (None, "it would become several delegates"))
    raise UnsupportedError(
        reason,
        where=None if node is None else describe_node(node),
        hint="partition with delegatekit_executorch.partitioner, which leaves out what a backend does not take",
    )


def homes_of(units: Units, reading: Reading, method: PartitionedMethod, backend: str) -> Homes:
    """The partition of each unit by a plan."""
    plan = method.plan
    home = {node: index for index, partition in enumerate(plan.partitions) for node in partition.nodes}
    parts: dict[Node, list[Node]] = {}
    for node in method.edge.graph.nodes:
        if node.op == "call_function" and not is_size_node(node):
            parts.setdefault(units.root[reading.origins[node.meta["debug_handle"] - 1]], []).append(node)
    homes = Homes(units)
    for unit, nodes in parts.items():
        outside = next((node for node in nodes if node not in home), None)
        if outside is not None:
            homes.left[unit] = _reason(method, outside, backend)
        elif len({home[node] for node in nodes}) > 1:
            homes.left[unit] = "its parts are in several delegates"
        else:
            homes.known[unit] = home[nodes[0]]
    return homes


def _reason(method: PartitionedMethod, node: Node, backend: str) -> str:
    if node.target is OUTSIDE:
        return CLOSED
    answer = method.plan.verdicts.get(node, {}).get(backend)
    return answer.reason if answer is not None and answer.reason else TOGETHER


@dataclass
class _Ordering:
    source: Source
    backend: Backend
    shared: Collection[str]
    _checked: dict[Hashable, Order] = field(default_factory=dict)
    _failed: set[Hashable] = field(default_factory=set)

    def run(self) -> Ordered:
        """The list of steps."""
        study = Study.of(self.source, self.backend)
        reading, method, refused, units, homes = study.reading, study.method, study.refused, study.units, study.homes
        for node, reason in refused.items():
            homes.left[units.root[node]] = reason
        owned = [self._placeholder(node) for node in method.plan.owned_buffers]
        if not refused:
            self._try_whole(units, reading, method, owned)
        for number in range(len(units.members) + 2):
            groups = homes.groups()
            orders = [self._order(members, owned, homes, (number, index)) for index, members in enumerate(groups)]
            found = [order for order in orders if order is not None]
            if len(found) == len(groups):
                break
        inside = {node for order in found for node in order.nodes}
        left: dict[Node, str] = {}
        # What is computed for an operator that is left, is left for the same reason.
        for unit in reversed(units.members):
            if unit not in inside and not is_number(unit):
                users = (left[user] for user in units.users[unit] if user in left)
                left[unit] = homes.left.get(unit) or next(users, UNNEEDED)
        return Ordered(tuple(found), dict(reversed(left.items())), study)

    def check(self, members: Sequence[Node], owned: Collection[Node]) -> Order | Homes:
        """The order for some calls; where they would not become one delegate, what becomes of each."""
        kept = self._kept(members, owned)
        reading = read_part(self.source, members, kept)
        try:
            method = self.backend.plan(reading)
        except UnsupportedError as error:
            return Homes(Units(members), left=dict.fromkeys(members, error.what))
        found = self._fitting(members, kept, reading, method)
        return self.check(members, ()) if found is None else found

    def _placeholder(self, node: Node) -> Node:
        return next(item for item in self.source.buffers if item.name == node.name)

    def _try_whole(self, units: Units, reading: Reading, method: PartitionedMethod, owned: Collection[Node]) -> None:
        """Use the first plan for the group of all calls: most programs that fit, fit whole."""
        members = self.source.calls
        returned = self.source.outputs
        same = set(returned) <= set(members) and len(set(returned)) == len(returned)
        if not same or set(self._kept(members, owned)) != set(self.source.buffers):
            return
        found = self._fitting(members, tuple(self.source.buffers), reading, method)
        if isinstance(found, Order):
            self._checked[self._key(members, owned)] = found

    def _key(self, members: Sequence[Node], owned: Collection[Node]) -> Hashable:
        inside = set(members)
        outputs = tuple(node for node in members if any(user not in inside for user in node.users))
        return tuple(members), outputs, tuple(self._kept(members, owned))

    def _kept(self, members: Sequence[Node], owned: Collection[Node]) -> tuple[Node, ...]:
        """The buffers that a delegate of these calls keeps: those that nothing else reads or updates, nor reads the
        new value of."""
        inside = set(members)
        found = []
        for node in owned:
            known = self.source.buffers[node]
            users = [*node.users, *(user for user in known.updated.users if user.op != "output")]
            alone = known.updated in inside and inside.issuperset(users)
            if alone and known.name not in self.shared and known.updated not in self.source.outputs:
                found.append(node)
        return tuple(found)

    def _order(self, members: Sequence[Node], owned: Collection[Node], homes: Homes, name: Hashable) -> Order | None:
        """The order for a group, or None where the homes of its calls had to change."""
        key = self._key(members, owned)
        if key in self._checked:
            return self._checked[key]
        found = self.check(members, owned)
        if isinstance(found, Order):
            self._checked[key] = found
            return found
        units = found.units.members
        again = key in self._failed or (not found.left and len(set(found.known.values())) < 2)
        self._failed.add(key)
        for unit in units:
            homes.known.pop(unit, None)
            if unit in found.known and not again:
                homes.known[unit] = (name, found.known[unit])
            elif unit in found.left or again:
                homes.leave(unit, found.left.get(unit, "it would not become one delegate with what is beside it"))
        return None

    def _fitting(
        self, members: Sequence[Node], kept: tuple[Node, ...], reading: Reading, method: PartitionedMethod
    ) -> Order | Homes | None:
        """The order of a plan, or what becomes of the calls instead; None if buffers cannot be kept."""
        units, plan = Units(members), method.plan
        if len(plan.partitions) != 1 or any(map(is_work, plan.fallback)):
            return homes_of(units, reading, method, self.backend.name)
        (partition,) = plan.partitions
        if kept and {node.name for node in partition.buffers} != {node.name for node in kept}:
            return None
        left = dict(self._misfits(members, reading, method, partition))
        if left:
            known: dict[Node, Hashable] = dict.fromkeys(units.members, 0)
            roots = {units.root[node]: reason for node, reason in left.items()}
            return Homes(units, {unit: 0 for unit in known if unit not in roots}, roots)
        inputs = dict(zip((node.name for node in reading.inputs), method.edge.inputs, strict=True))
        outputs = dict(zip((node.name for node in reading.outputs), method.edge.outputs, strict=True))
        arguments = {node.name: tuple(item.name for item in node.all_input_nodes) for node in members}
        return Order(self.backend, tuple(members), reading, method, arguments, inputs, outputs, kept)

    def _misfits(
        self, members: Sequence[Node], reading: Reading, method: PartitionedMethod, partition: Partition
    ) -> Iterator[tuple[Node, str]]:
        """Calls because of which stock would call the delegate with other tensors than it takes and gives."""
        inside = set(members)
        edge = method.edge
        if any(item in edge.constants for item in partition.inputs):
            told = "its delegate would take constants as inputs, and stock's pipeline compiles them into delegates"
            yield from ((node, told) for node in members)
        for node, value in zip(reading.inputs, edge.inputs, strict=True):
            fault = None
            if value not in partition.inputs:
                fault = "reads a tensor that its delegate does not need"
            elif not is_contiguous(node.meta["val"]):
                fault = "reads a tensor in another memory format than the contiguous one"
            if fault is not None:
                yield from ((user, fault) for user in node.users if user in inside)
        given: set[Any] = set()
        for node, value in zip(reading.outputs, edge.outputs, strict=True):
            if value not in partition.outputs or value in given:
                yield node, "its result is one of the delegate's inputs, a constant, or another result"
            elif not is_contiguous(node.meta["val"]):
                yield node, "its result is in another memory format than the contiguous one"
            given.add(value)
        for node in members:
            for item in node.all_input_nodes:
                if item not in inside and not isinstance(item.meta.get("val"), torch.Tensor):
                    yield node, "reads a number that is computed outside of its delegate"
