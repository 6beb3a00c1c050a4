"""Removes dead operations, such as the quantize of a value that was in integers already."""

from __future__ import annotations

from ..ir.graph import Graph


def remove_unread(graph: Graph) -> None:
    """Keep the operations that outputs depend on."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if needed.isdisjoint(node.outputs):
            continue
        needed.update(node.inputs)
        kept.append(node)
    graph.nodes[:] = reversed(kept)
