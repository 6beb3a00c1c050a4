"""Groups of stock nodes that one delegate computes, formed from a plan of the core.

A unit is a call with the getitems on its results. A unit whose edge nodes are all in one partition belongs there; one
that left no edge node (an equal call, a folded constant, a view without effect) goes where its users are; sizes are
computed inside the groups that need them. No group may depend on itself through what is outside of it.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from .readings import is_number

#: Why a unit is in no group that its edge nodes are in.
SIZES = "needs a size that is computed outside of its delegate"


class Units:
    """The units of a graph, by their calls, in the order of the graph."""

    def __init__(self, calls: Sequence[Node]) -> None:
        self.root: dict[Node, Node] = {}
        for node in calls:
            owner = node.args[0] if node.target is operator.getitem else node
            assert isinstance(owner, Node)
            self.root[node] = self.root.get(owner, node)
        self.members: dict[Node, list[Node]] = {}
        for node, root in self.root.items():
            self.members.setdefault(root, []).append(node)
        self.inputs: dict[Node, set[Node]] = {}
        self.users: dict[Node, set[Node]] = {root: set() for root in self.members}
        #: Units whose values the graph returns.
        self.returned: set[Node] = set()
        for root, members in self.members.items():
            found = {self.root[item] for node in members for item in node.all_input_nodes if item in self.root}
            self.inputs[root] = found - {root}
            for source in self.inputs[root]:
                self.users[source].add(root)
            if any(user.op == "output" for node in members for user in node.users):
                self.returned.add(root)


@dataclass
class Homes:
    """The partition of each unit: of some the plan says it, the others follow."""

    units: Units
    #: Unit -> its partition. A unit in neither is neutral.
    known: dict[Node, Hashable] = field(default_factory=dict)
    #: Unit -> why it is in no group.
    left: dict[Node, str] = field(default_factory=dict)

    def leave(self, unit: Node, reason: str) -> None:
        """Take a unit out of its group for good."""
        self.known.pop(unit, None)
        self.left.setdefault(unit, reason)

    def groups(self) -> list[list[Node]]:
        """The groups as calls in the order of the graph. What cannot be in one leaves."""
        group = self._attached()
        while True:
            lost = [
                unit
                for unit, home in group.items()
                if unit in self.known
                for source in self.units.inputs[unit]
                if is_number(source) and group.get(source) != home
            ]
            if not lost:
                break
            for unit in lost:
                self.leave(unit, SIZES)
            group = self._attached()
        return _convex(self.units, group)

    def _attached(self) -> dict[Node, Hashable]:
        """The partition of each unit, neutral ones where all their users are."""
        group = dict(self.known)
        for unit in reversed(self.units.members):
            if unit in group or unit in self.left or unit in self.units.returned:
                continue
            homes = {group.get(user) for user in self.units.users[unit]}
            if len(homes) == 1 and None not in homes:
                group[unit] = homes.pop()
        # A neutral unit between others of one partition would make it depend on itself.
        for unit in self.units.members:
            if unit in group or unit in self.left or is_number(unit):
                continue
            before = {group.get(source) for source in self.units.inputs[unit]} - {None}
            after = {group.get(user) for user in self.units.users[unit]} - {None}
            if len(before) == 1 and before <= after:
                group[unit] = before.pop()
        return group


def _convex(units: Units, group: Mapping[Node, Hashable]) -> list[list[Node]]:
    """The groups, split where one would depend on itself."""
    if _is_acyclic(units, group):
        return _listed(units, group)
    done: dict[Node, Hashable] = {}
    for home in dict.fromkeys(group.values()):
        own = {unit for unit, other in group.items() if other == home}
        depth = _depths(units, done, own)
        done |= {unit: (home, depth[unit]) for unit in own}
    return _listed(units, done)


def _listed(units: Units, group: Mapping[Node, Hashable]) -> list[list[Node]]:
    found: dict[Hashable, list[Node]] = {}
    for node, unit in units.root.items():
        if unit in group:
            found.setdefault(group[unit], []).append(node)
    return list(found.values())


def _is_acyclic(units: Units, group: Mapping[Node, Hashable]) -> bool:
    return len(_order(units, group)) == len({group.get(unit, unit) for unit in units.members})


def _order(units: Units, group: Mapping[Node, Hashable]) -> list[list[Node]]:
    """Groups and single units, each after all that it depends on; what depends on itself is missing."""
    vertices: dict[Hashable, list[Node]] = {}
    for unit in units.members:
        vertices.setdefault(group.get(unit, unit), []).append(unit)
    waiting = {
        name: {group.get(source, source) for unit in members for source in units.inputs[unit]} - {name}
        for name, members in vertices.items()
    }
    users: dict[Hashable, list[Hashable]] = {}
    for name, sources in waiting.items():
        for source in sources:
            users.setdefault(source, []).append(name)
    ready = [name for name, sources in waiting.items() if not sources]
    found = []
    while ready:
        name = ready.pop()
        found.append(vertices[name])
        for user in users.get(name, ()):
            waiting[user].discard(name)
            if not waiting[user]:
                ready.append(user)
    return found


def _depths(units: Units, done: Mapping[Node, Hashable], own: Iterable[Node]) -> dict[Node, int]:
    """The number of times that a path to each of these units leaves them and comes back, at most.

    `done` are the groups that stay as they are.
    """
    inside = set(own)
    #: Of a unit outside: the depth of the deepest of `own` before it, -1 without one.
    depth: dict[Node, int] = {}
    for members in _order(units, done):
        sources = {source for unit in members for source in units.inputs[unit]} - set(members)
        if len(members) == 1 and members[0] in inside:
            depth[members[0]] = max(
                (depth[source] if source in inside else depth[source] + 1 for source in sources), default=0
            )
        else:
            depth |= dict.fromkeys(members, max((depth[source] for source in sources), default=-1))
    return depth
