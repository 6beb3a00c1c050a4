"""Removes dead operations, such as the quantize of a value that was in integers already."""

from __future__ import annotations

import math

from ..ir.graph import Graph, Node, Tensor


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


def read_inputs(graph: Graph) -> None:
    """Give each input without a reader one: the library leaves it out, and refuses calls, which have it."""
    read = {tensor for node in graph.nodes for tensor in node.inputs}
    for tensor in graph.inputs:
        if tensor not in read:
            made = Tensor((math.prod(tensor.shape),), tensor.datatype, tensor.encoding)
            graph.nodes.append(Node("Reshape", (tensor,), (made,), {}, f"Reshape_{len(graph.nodes)}"))
