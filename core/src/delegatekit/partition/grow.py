"""Forms the partitions: every backend answers about nodes, core grows maximal convex sets for all of them at once.

In comes an edge method and partitioners in priority order; out goes a `PartitionPlan`. Nothing is changed.

The algorithm: each node belongs to one kind: a backend, or fallback. Kinds take turns, round after round; a node gets
the earliest turn of its kind that is not before any of its inputs. Nodes of one turn form a set, and since turns never
go backwards along an edge, the sets cannot depend on each other in a cycle. A second sweep delays nodes to a
later turn where that joins them to their users. A last pass over the (few) sets merges the mergeable ones,
exactly, with reachability kept as bit sets. The first two sweeps are linear in nodes and edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import Node

from delegatekit_api import BackendDescription, Partitioner, PluginError, Verdict
from delegatekit_api.nodes import describe_node

from ..edge import EdgeMethod
from .ask import ask_backends
from .assembly import assemble
from .clusters import Clusters, join_groups, join_proposals
from .foreign_sizes import lost_in_set
from .order import topological
from .plan import PartitionPlan
from .quotient import Quotient
from .state import StateOwners

#: Limit of sets in the merging pass: with more, its bit sets would become large; the sets stay as grown.
_EXACT_LIMIT = 16_384


def partition(
    method: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    *,
    descriptions: Mapping[str, BackendDescription] | None = None,
    owners: StateOwners | None = None,
    ask_all: bool = False,
) -> PartitionPlan:
    """Partition a method among backends, given in priority order. Graphs of control flow are partitioned separately.

    `descriptions` has the backends' further abilities: changing sizes, state of their own; a backend
    without one has neither. `owners` decides which buffers they keep; without, all that they can. With `ask_all`
    every backend is asked about every node (for explanations), which changes no assignment. Raises PluginError when a
    partitioner raises or its answer is invalid.
    """
    nodes = [node for node in method.graph.nodes if node.op == "call_function"]
    descriptions = descriptions or {}
    verdicts = {node: ask_backends(node, method, partitioners, descriptions, ask_all=ask_all) for node in nodes}
    while True:
        taker = _first_takers(verdicts)
        clusters = Clusters(nodes)
        fixed = join_proposals(method, partitioners, verdicts, taker, clusters)
        join_groups(verdicts, taker, clusters)
        graph = _ClusterGraph(nodes, clusters, taker, fixed, tuple(partitioners))
        refused = _refused_group(graph, verdicts, taker)
        if not refused:
            sets = graph.grow()
            chosen = {index: nodes for index, nodes in sets.items() if not _only_passengers(nodes, verdicts, taker)}
            refused = _refused_sizes(method, chosen, verdicts, taker)
        if not refused:
            break
        for node, answer in refused.items():
            backend = taker[node]
            verdicts[node][backend] = answer
            rest = {name: partitioner for name, partitioner in partitioners.items() if name not in verdicts[node]}
            verdicts[node].update(ask_backends(node, method, rest, descriptions, ask_all=ask_all))
    return assemble(method, nodes, verdicts, taker, chosen, owners or StateOwners(partitioners, descriptions))


def _first_takers(verdicts: Mapping[Node, Mapping[str, Verdict]]) -> dict[Node, str]:
    taker: dict[Node, str] = {}
    for node, answers in verdicts.items():
        for backend, answer in answers.items():
            if answer.supported:
                taker[node] = backend
                break
    return taker


def _refused_group(
    graph: _ClusterGraph, verdicts: Mapping[Node, Mapping[str, Verdict]], taker: Mapping[Node, str]
) -> dict[Node, Verdict]:
    """New verdicts on the first group that depends on itself through a node outside: no delegate can compute it.

    Empty if there is none. Raises PluginError for a proposed partition that depends on itself.
    """
    for index in graph.stuck:
        through = graph.circle(index)
        if through is None:
            continue
        members = graph.members[index]
        grouped = [node for node in members if node in taker and verdicts[node][taker[node]].group]
        where = describe_node(graph.members[through][0])
        if not grouped:
            raise PluginError(
                f"a proposed partition depends on itself through a node outside, {where}",
                where=describe_node(members[0]),
            )
        return dict.fromkeys(grouped, Verdict.no(f"its group depends on itself through a node outside, {where}"))
    return {}


def _refused_sizes(
    method: EdgeMethod,
    chosen: Mapping[int, Sequence[Node]],
    verdicts: Mapping[Node, Mapping[str, Verdict]],
    taker: Mapping[Node, str],
) -> dict[Node, Verdict]:
    """New verdicts on nodes that need sizes which no input of their delegate would have; empty if there are none."""
    refused: dict[Node, Verdict] = {}
    for members in chosen.values():
        for lost, size in lost_in_set(method, members).items():
            answer = Verdict.no(f"the size {size} is not a size of its delegate's inputs")
            for node in members:
                own = verdicts[node].get(taker.get(node, ""))
                if own is not None and own.supported and (node is lost or lost in own.group):
                    refused[node] = answer
    return refused


class _ClusterGraph:
    """The graph of clusters, in topological order, and the sets that grow on it."""

    def __init__(
        self,
        nodes: Sequence[Node],
        clusters: Clusters,
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
        self.order = topological(inputs, users)
        #: Clusters that depend on themselves through others, and those after them.
        self.stuck = sorted(set(range(size)) - set(self.order)) if len(self.order) != size else []

    def circle(self, index: int) -> int | None:
        """The cluster through which a cluster depends on itself; None if it does not."""
        waiting = [(user, user) for user in sorted(self.users[index])]
        seen: set[int] = set()
        while waiting:
            first, current = waiting.pop()
            if current == index:
                return first
            if current not in seen:
                seen.add(current)
                waiting.extend((first, user) for user in sorted(self.users[current]))
        return None

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
            members.sort(key=self._position.__getitem__)  # the nodes of a group may not be adjacent
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
        """True if two clusters cannot be in the same set: other kinds, or one is a backend's own partition."""
        return self.kind[first] != self.kind[second] or first in self.fixed or second in self.fixed

    def _wait(self, turn: list[int]) -> None:
        """Move clusters to a later turn of a user of the same kind, if no other user needs them earlier."""
        for index in reversed(self.order):
            if not self.kind[index] or index in self.fixed or not self.users[index]:
                continue
            latest = min(turn[user] - int(self._apart(index, user)) for user in self.users[index])
            joins = [turn[user] for user in self.users[index] if not self._apart(index, user) and turn[user] <= latest]
            if joins:
                turn[index] = max(turn[index], min(joins))

    def _merge(self, owner: dict[int, int], kind: list[int]) -> dict[int, int]:
        """Merge sets of one kind if no path leads from one through a third to the other."""
        quotient = Quotient(owner, kind, self.order, self.users)
        quotient.merge_all()
        return {index: quotient.final(number) for index, number in owner.items()}


def _only_passengers(
    members: Sequence[Node], verdicts: Mapping[Node, Mapping[str, Verdict]], taker: Mapping[Node, str]
) -> bool:
    for node in members:
        answer = verdicts[node].get(taker.get(node, ""))
        if answer is not None and answer.supported and not answer.passenger:
            return False
    return True
