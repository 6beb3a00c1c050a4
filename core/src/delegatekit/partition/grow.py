"""Forms the partitions: every backend answers about nodes, core grows maximal convex sets for all of them at once.

In comes an edge method and partitioners in priority order; out goes a `PartitionPlan`. Nothing is changed.

How it grows. Each node belongs to one kind: a backend, or fallback. Kinds take turns, round after round; a node gets
the earliest turn of its kind that is not before any of its inputs. Nodes of one turn form a set, and since turns never
go backwards along an edge, the sets cannot depend on each other in a circle. A second sweep lets nodes wait for a
later turn where that joins them to their users. A last pass over the (few) sets merges what is still mergeable,
exactly, with reachability kept as bit sets. The first two sweeps are linear in nodes and edges.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Iterable, Mapping, Sequence

from torch.fx import Node

from delegatekit_api import BackendDescription, LoweringError, Partitioner, PluginError, Verdict, describe_node

from ..edge import EdgeMethod
from ..edge.sizes import is_size
from .ask import ask_backends, blaming_partitioner
from .plan import Partition, PartitionPlan

#: With more sets than this, the bit sets of the merging pass would not be small any more; the sets stay as grown.
_EXACT_LIMIT = 16_384


def partition(
    method: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    *,
    descriptions: Mapping[str, BackendDescription] | None = None,
    ask_all: bool = False,
) -> PartitionPlan:
    """Partition a method among backends, given in priority order. Graphs of control flow are partitioned apart.

    `descriptions` says what the backends can do beside taking operators: sizes that change, state of their own; one
    that is not described can neither. With `ask_all` every backend is asked about every node (for explanations),
    which changes no assignment. Raises PluginError when a partitioner raises or its answer breaks the rules of the
    border.
    """
    nodes = [node for node in method.graph.nodes if node.op == "call_function"]
    descriptions = descriptions or {}
    verdicts = {node: ask_backends(node, method, partitioners, descriptions, ask_all=ask_all) for node in nodes}
    taker = _first_takers(verdicts)
    clusters = _Clusters(nodes)
    fixed = _proposals(method, partitioners, verdicts, taker, clusters)
    _join_groups(verdicts, taker, clusters)
    graph = _ClusterGraph(nodes, clusters, taker, fixed, tuple(partitioners))
    sets = graph.grow()
    chosen = {index: members for index, members in sets.items() if not _only_passengers(members, verdicts, taker)}
    stateful = frozenset(name for name, facts in descriptions.items() if facts.owns_state)
    return _plan(method, nodes, verdicts, taker, chosen, stateful)


def _first_takers(verdicts: Mapping[Node, Mapping[str, Verdict]]) -> dict[Node, str]:
    taker: dict[Node, str] = {}
    for node, answers in verdicts.items():
        for backend, answer in answers.items():
            if answer.supported:
                taker[node] = backend
                break
    return taker


class _Clusters:
    """Nodes that cannot be separated: union-find, the earliest node of each cluster as its name."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.position = {node: index for index, node in enumerate(nodes)}
        self.parent = list(range(len(nodes)))
        for node in nodes:
            if node.target is operator.getitem and isinstance(node.args[0], Node):
                self.join(node.args[0], node)

    def find(self, node: Node) -> int:
        index = self.position[node]
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def join(self, first: Node, second: Node) -> None:
        low, high = sorted((self.find(first), self.find(second)))
        self.parent[high] = low


def _proposals(
    method: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    verdicts: Mapping[Node, Mapping[str, Verdict]],
    taker: dict[Node, str],
    clusters: _Clusters,
) -> set[int]:
    """Clusters that backends proposed as whole partitions; they are not merged any further."""
    fixed: set[int] = set()
    for backend, partitioner in partitioners.items():
        with blaming_partitioner(backend, "proposing partitions"):
            proposal = partitioner.propose(method.view)
        if proposal is None:
            continue
        claimed: set[Node] = set()
        for members in proposal:
            group = [node for node in members if taker.get(node) == backend]
            for node in group:
                if node in claimed:
                    raise PluginError(f"backend {backend} proposed a node twice", where=describe_node(node))
                clusters.join(group[0], node)
            claimed.update(group)
            if group:
                fixed.add(clusters.find(group[0]))
        for node in [node for node, owner in taker.items() if owner == backend and node not in claimed]:
            del taker[node]
    return fixed


def _join_groups(verdicts: Mapping[Node, Mapping[str, Verdict]], taker: dict[Node, str], clusters: _Clusters) -> None:
    for node, backend in list(taker.items()):
        for other in verdicts[node][backend].group:
            if other not in clusters.position:
                raise PluginError(
                    f"backend {backend} groups a node that is not in the graph", where=describe_node(node)
                )
            taker[other] = backend
            clusters.join(node, other)


class _ClusterGraph:
    """The graph of clusters, in topological order, and the sets that grow on it."""

    def __init__(
        self,
        nodes: Sequence[Node],
        clusters: _Clusters,
        taker: Mapping[Node, str],
        fixed: set[int],
        backends: tuple[str, ...],
    ) -> None:
        self._position = clusters.position
        names = sorted({clusters.find(node) for node in nodes})
        number = {name: index for index, name in enumerate(names)}
        size = len(names)
        self.members: list[list[Node]] = [[] for _ in range(size)]
        self.kind = [0] * size
        users: list[set[int]] = [set() for _ in range(size)]
        inputs: list[set[int]] = [set() for _ in range(size)]
        for node in nodes:
            index = number[clusters.find(node)]
            self.members[index].append(node)
            if node in taker:
                self.kind[index] = 1 + backends.index(taker[node])
            for argument in node.all_input_nodes:
                if argument in clusters.position:
                    source = number[clusters.find(argument)]
                    if source != index:
                        users[source].add(index)
                        inputs[index].add(source)
        self.users, self.inputs = users, inputs
        self.kinds = 1 + len(backends)
        self.fixed = {number[clusters.find(nodes[name])] for name in fixed}
        self.order = _topological(inputs, users)
        if len(self.order) != size:
            stuck = set(range(size)) - set(self.order)
            node = next(node for index in sorted(stuck) for node in self.members[index] if len(self.members[index]) > 1)
            raise PluginError("a group of nodes depends on itself through a node outside", where=describe_node(node))

    def grow(self) -> dict[int, list[Node]]:
        """Set number -> nodes, in graph order within a set; fallback clusters are in no set."""
        turn = self._turns()
        self._wait(turn)
        sets: dict[tuple[int, int, int], int] = {}
        owner: dict[int, int] = {}
        for index in self.order:
            if self.kind[index]:
                key = (self.kind[index], turn[index], index if index in self.fixed else -1)
                owner[index] = sets.setdefault(key, len(sets))
        if len(sets) <= _EXACT_LIMIT:
            owner = self._merge(owner, [key[0] if key[2] < 0 else 0 for key in sets])
        grown: dict[int, list[Node]] = {}
        for index in sorted(owner):
            grown.setdefault(owner[index], []).extend(self.members[index])
        for members in grown.values():
            members.sort(key=self._position.__getitem__)  # the nodes of a group need not be neighbours
        return grown

    def _turns(self) -> list[int]:
        """The earliest turn of each cluster: turns of kind k are those congruent to k modulo the number of kinds."""
        turn = [0] * len(self.members)
        for index in self.order:
            kind = self.kind[index]
            earliest = max((turn[source] for source in self.inputs[index]), default=0)
            if any(turn[source] == earliest and self._apart(source, index) for source in self.inputs[index]):
                earliest += 1
            turn[index] = earliest + (kind - earliest) % self.kinds
        return turn

    def _apart(self, first: int, second: int) -> bool:
        """Whether two clusters cannot be in the same set: other kinds, or one is a backend's own partition."""
        return self.kind[first] != self.kind[second] or first in self.fixed or second in self.fixed

    def _wait(self, turn: list[int]) -> None:
        """Move clusters to a later turn of a user of the same kind, where no other user needs them before."""
        for index in reversed(self.order):
            if not self.kind[index] or index in self.fixed or not self.users[index]:
                continue
            latest = min(turn[user] - int(self._apart(index, user)) for user in self.users[index])
            joins = [turn[user] for user in self.users[index] if not self._apart(index, user) and turn[user] <= latest]
            if joins:
                turn[index] = max(turn[index], min(joins))

    def _merge(self, owner: dict[int, int], kind: list[int]) -> dict[int, int]:
        """Merge sets of one kind wherever no path leads from one through something else to the other."""
        quotient = _Quotient(owner, kind, self)
        quotient.merge_all()
        return {index: quotient.final(number) for index, number in owner.items()}


class _Quotient:
    """Sets and fallback clusters as vertices; for each, the sets before and behind it as bits of an integer."""

    def __init__(self, owner: dict[int, int], kind: list[int], graph: _ClusterGraph) -> None:
        self.kind = kind
        self.count = len(kind)
        self.merged_into = list(range(self.count))
        vertex = {index: owner[index] for index in owner}
        for index in graph.order:
            if index not in vertex:
                vertex[index] = self.count + len(vertex)
        names = {name: number for number, name in enumerate(sorted(set(vertex.values())))}
        size = len(names)
        self.after: list[set[int]] = [set() for _ in range(size)]
        self.before: list[set[int]] = [set() for _ in range(size)]
        for index, users in enumerate(graph.users):
            source = names[vertex[index]]
            for user in users:
                target = names[vertex[user]]
                if source != target:
                    self.after[source].add(target)
                    self.before[target].add(source)
        order = _topological(self.before, self.after)
        if len(order) != size:
            raise LoweringError("partition growth made a cycle: this is a fault of DelegateKit")
        self.behind = self._closure(reversed(order), self.after)
        self.ahead = self._closure(order, self.before)

    def _closure(self, order: Iterable[int], towards: list[set[int]]) -> list[int]:
        reach = [0] * len(self.after)
        for vertex in order:
            bits = 0
            for other in towards[vertex]:
                bits |= reach[other]
                if other < self.count:
                    bits |= 1 << other
            reach[vertex] = bits
        return reach

    def merge_all(self) -> None:
        of_kind: dict[int, int] = {}
        for number, kind in enumerate(self.kind):
            if kind:
                of_kind[kind] = of_kind.get(kind, 0) | 1 << number
        for number, kind in enumerate(self.kind):
            while kind and self.merged_into[number] == number:
                blocked = 1 << number
                for other in self.after[number]:
                    blocked |= self.behind[other]
                for other in self.before[number]:
                    blocked |= self.ahead[other]
                candidates = of_kind[kind] & ~blocked
                if not candidates:
                    break
                partner = (candidates & -candidates).bit_length() - 1
                self._merge(number, partner)
                of_kind[kind] &= ~(1 << partner)

    def _merge(self, number: int, partner: int) -> None:
        self.merged_into[partner] = number
        both = 1 << number | 1 << partner
        for neighbours, back in ((self.after, self.before), (self.before, self.after)):
            for other in neighbours[partner]:
                back[other].discard(partner)
                back[other].add(number)
            neighbours[number] |= neighbours[partner]
            neighbours[number] -= {number, partner}
            neighbours[partner] = set()
        behind = (self.behind[number] | self.behind[partner]) & ~both
        ahead = (self.ahead[number] | self.ahead[partner]) & ~both
        for reach, own in ((self.behind, behind), (self.ahead, ahead)):
            for vertex, bits in enumerate(reach):
                if bits & both:
                    reach[vertex] = bits | both | own
        self.behind[number], self.ahead[number] = behind, ahead

    def final(self, number: int) -> int:
        while self.merged_into[number] != number:
            number = self.merged_into[number]
        return number


def _topological(before: Sequence[set[int]], after: Sequence[set[int]]) -> list[int]:
    """Indices in topological order, the smallest ready index first; shorter than the input if there is a cycle."""
    waiting = [len(sources) for sources in before]
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in after[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return order


def _only_passengers(
    members: Sequence[Node], verdicts: Mapping[Node, Mapping[str, Verdict]], taker: Mapping[Node, str]
) -> bool:
    for node in members:
        answer = verdicts[node].get(taker.get(node, ""))
        if answer is not None and answer.supported and not answer.passenger:
            return False
    return True


def _plan(
    method: EdgeMethod,
    nodes: Sequence[Node],
    verdicts: Mapping[Node, Mapping[str, Verdict]],
    taker: Mapping[Node, str],
    chosen: Mapping[int, Sequence[Node]],
    stateful: frozenset[str],
) -> PartitionPlan:
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
    order = _topological(before, after)
    if len(order) != len(names):
        raise LoweringError("the partitions depend on each other in a circle: this is a fault of DelegateKit")
    owned = _owned_buffers(method, {node: names[number[step_of[node]]] for node in home}, taker, stateful)
    returned = {item for item in method.outputs if isinstance(item, Node)}
    returned.update(buffer.updated for node, buffer in method.buffers.items() if node not in owned)
    steps: list[Node | Partition] = []
    for index in order:
        first = nodes[names[index]]
        if first in home:
            members = chosen[home[first]]
            backend = next(taker[node] for node in members if node in taker)
            steps.append(_boundary(method, backend, members, returned, owned))
        else:
            steps.append(first)
    return PartitionPlan(tuple(steps), verdicts, {node: taker[chosen[home[node]][0]] for node in home})


def _owned_buffers(
    method: EdgeMethod, home: Mapping[Node, int], taker: Mapping[Node, str], stateful: frozenset[str]
) -> frozenset[Node]:
    """Buffers that nobody but one partition, of a backend that keeps state, reads and updates."""
    owned: set[Node] = set()
    for node, buffer in method.buffers.items():
        users = [user for user in (*node.users, buffer.updated) if user.op != "output"]
        homes = {home.get(user) for user in users}
        outside = node in method.outputs or any(other.updated is node for other in method.buffers.values())
        if len(homes) == 1 and None not in homes and not outside and taker.get(buffer.updated) in stateful:
            owned.add(node)
    return frozenset(owned)


def _boundary(
    method: EdgeMethod, backend: str, members: Sequence[Node], returned: set[Node], owned: frozenset[Node]
) -> Partition:
    inside = set(members)
    inputs: dict[Node, None] = {}
    constants: dict[Node, None] = {}
    buffers: dict[Node, None] = {}
    for node in members:
        for argument in node.all_input_nodes:
            if argument not in inside and not is_size(argument.meta["val"]):
                known = argument in method.constants
                (constants if known else buffers if argument in owned else inputs)[argument] = None
    outputs = tuple(
        node
        for node in members
        if node in returned or any(user not in inside and user.op != "output" for user in node.users)
    )
    return Partition(backend, tuple(members), tuple(inputs), tuple(constants), outputs, tuple(buffers))
