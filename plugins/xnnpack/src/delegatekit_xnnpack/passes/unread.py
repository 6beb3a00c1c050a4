"""Removes dead nodes."""

from __future__ import annotations

from ..ir.graph import Graph, Node, Value


def drop_unread(graph: Graph) -> None:
    """Remove nodes whose result is neither read nor returned."""
    wanted: set[Value] = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in wanted:
            wanted.update(node.inputs)
            kept.append(node)
    graph.nodes = kept[::-1]
