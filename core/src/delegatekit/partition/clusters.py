"""Inseparable nodes: results and their getitem, groups that a backend takes as a whole, proposed partitions."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence

from torch.fx import Node

from delegatekit_api import Partitioner, PluginError, Verdict
from delegatekit_api.nodes import describe_node

from ..edge import EdgeMethod
from ..plugins import check_answer
from .ask import blaming_partitioner


class Clusters:
    """Inseparable nodes: union-find, with the earliest node of each cluster as its name."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.position = {node: index for index, node in enumerate(nodes)}
        self.parent = list(range(len(nodes)))
        for node in nodes:
            if node.target is operator.getitem and isinstance(node.args[0], Node):
                self.join(node.args[0], node)

    def find(self, node: Node) -> int:
        """The name of the node's cluster: the position of its earliest node."""
        index = self.position[node]
        while self.parent[index] != index:
            self.parent[index] = self.parent[self.parent[index]]
            index = self.parent[index]
        return index

    def join(self, first: Node, second: Node) -> None:
        """Merge the clusters of two nodes."""
        low, high = sorted((self.find(first), self.find(second)))
        self.parent[high] = low


def join_proposals(
    method: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    verdicts: Mapping[Node, Mapping[str, Verdict]],
    taker: dict[Node, str],
    clusters: Clusters,
) -> set[int]:
    """Clusters that backends proposed as whole partitions; they are not merged any further.

    The rest of a proposal that lost nodes to another backend or to the user is grown: it may not be convex any more.
    """
    fixed: set[int] = set()
    for backend, partitioner in partitioners.items():
        with blaming_partitioner(backend, "proposing partitions"):
            proposal = partitioner.propose(method.view)
        if proposal is None:
            continue
        check_answer(proposal, Sequence[Collection[Node]], "what propose returned", f"backend {backend}")
        claimed: set[Node] = set()
        for members in proposal:
            group = [node for node in members if taker.get(node) == backend]
            for node in group:
                if node in claimed:
                    raise PluginError(f"backend {backend} proposed a node twice", where=describe_node(node))
                if len(group) == len(members):
                    clusters.join(group[0], node)
            claimed.update(group)
            if group and len(group) == len(members):
                fixed.add(clusters.find(group[0]))
        for node in [node for node, owner in taker.items() if owner == backend and node not in claimed]:
            del taker[node]
    return fixed


def join_groups(verdicts: Mapping[Node, Mapping[str, Verdict]], taker: dict[Node, str], clusters: Clusters) -> None:
    """Join the nodes that their backend takes together only. Raises PluginError for a node that is not in the graph."""
    for node, backend in list(taker.items()):
        for other in verdicts[node][backend].group:
            if other not in clusters.position:
                raise PluginError(
                    f"backend {backend} groups a node that is not in the graph", where=describe_node(node)
                )
            taker[other] = backend
            clusters.join(node, other)
