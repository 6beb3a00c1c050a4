"""Makes the plan of the grown sets: steps in execution order, and the values that cross each partition's border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import Node

from delegatekit_api import LoweringError, Verdict

from ..edge import EdgeMethod
from ..edge.sizes import is_size
from .order import topological
from .plan import Partition, PartitionPlan
from .state import StateOwners


def assemble(
    method: EdgeMethod,
    nodes: Sequence[Node],
    verdicts: Mapping[Node, Mapping[str, Verdict]],
    taker: Mapping[Node, str],
    chosen: Mapping[int, Sequence[Node]],
    owners: StateOwners,
) -> PartitionPlan:
    """The plan of a method: `chosen` are the sets that become partitions, `owners` decide the buffers they may keep."""
    home: dict[Node, int] = {node: number for number, members in chosen.items() for node in members}
    position = {node: index for index, node in enumerate(nodes)}
    # A step is named by the position of its first node.
    step_of = {node: position[chosen[home[node]][0]] if node in home else index for node, index in position.items()}
    names = sorted(set(step_of.values()))
    number = {name: index for index, name in enumerate(names)}
    before: list[set[int]] = [set() for _ in names]
    after: list[set[int]] = [set() for _ in names]
    for node in nodes:
        target = number[step_of[node]]
        for argument in node.all_input_nodes:
            if argument in position and number[step_of[argument]] != target:
                before[target].add(number[step_of[argument]])
                after[number[step_of[argument]]].add(target)
    order = topological(before, after)
    if len(order) != len(names):
        raise LoweringError("the partitions depend on each other in a circle: this is a fault of DelegateKit")
    owned = _owned_buffers(method, {node: names[number[step_of[node]]] for node in home}, taker, owners)
    returned = {item for item in method.outputs if isinstance(item, Node)}
    returned.update(buffer.updated for node, buffer in method.buffers.items() if node not in owned)
    steps: list[Node | Partition] = []
    for index in order:
        first = nodes[names[index]]
        if first in home:
            members = chosen[home[first]]
            backend = next(taker[node] for node in members if node in taker)
            steps.append(_boundary(method, backend, members, returned, owned, owners))
        else:
            steps.append(first)
    return PartitionPlan(tuple(steps), verdicts, {node: taker[chosen[home[node]][0]] for node in home})


def _owned_buffers(
    method: EdgeMethod, home: Mapping[Node, int], taker: Mapping[Node, str], owners: StateOwners
) -> frozenset[Node]:
    """Buffers that only one partition, of a backend that keeps state, reads and updates."""
    owned: set[Node] = set()
    for node, buffer in method.buffers.items():
        users = [user for user in (*node.users, buffer.updated) if user.op != "output"]
        homes = {home.get(user) for user in users}
        outside = node in method.outputs or any(other.updated is node for other in method.buffers.values())
        if len(homes) != 1 or None in homes or outside:
            continue
        backend = taker.get(buffer.updated)
        if backend is not None and owners.may_keep(backend, node, method):
            owned.add(node)
    return frozenset(owned)


def _boundary(
    method: EdgeMethod,
    backend: str,
    members: Sequence[Node],
    returned: set[Node],
    owned: frozenset[Node],
    owners: StateOwners,
) -> Partition:
    inside = set(members)
    inputs: dict[Node, None] = {}
    constants: dict[Node, None] = {}
    buffers: dict[Node, None] = {}
    for node in members:
        for argument in node.all_input_nodes:
            if argument not in inside and not is_size(argument.meta["val"]):
                known = argument in method.constants and not owners.is_input(backend, argument, method)
                (constants if known else buffers if argument in owned else inputs)[argument] = None
    outputs = tuple(
        node
        for node in members
        if node in returned or any(user not in inside and user.op != "output" for user in node.users)
    )
    return Partition(backend, tuple(members), tuple(inputs), tuple(constants), outputs, tuple(buffers))
