"""Lets a node clamp its own result."""

from __future__ import annotations

from ..ir import operators as ops
from ..ir.graph import Graph, Node


def fold_clamps(graph: Graph) -> None:
    """Let a node clamp its own result if the clamp is the only reader."""
    readers = graph.users()
    folded: set[Node] = set()
    for node in graph.nodes:
        producer = node.inputs[0].producer
        if not isinstance(node.operator, ops.Clamp) or producer is None:
            continue
        if not (producer.operator.fuses_clamp or producer.operator.needs_clamp):
            continue
        if len(readers[node.inputs[0]]) > 1:
            continue
        assert node.clamp is not None
        producer.clamp = node.clamp if producer.clamp is None else producer.clamp.then(node.clamp)
        producer.output = node.output
        producer.debug_handles += node.debug_handles
        node.output.producer = producer
        folded.add(node)
    graph.nodes = [node for node in graph.nodes if node not in folded]
