"""Splits a convolution with a large filter into several, whose results are joined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from delegatekit_toolkit.sizes import dynamic_count, largest

from ..ir import operators as ops
from ..ir.graph import Graph, Node, Value
from .blocking import LARGE_ALONE, append, are_few, becomes, block_count, is_float, part, weight_bytes


def split_channels(graph: Graph, block_bytes: int) -> None:
    """Compute blocks of a convolution's output channels separately, if its filter is large.

    Clamps have been folded before: every block has its own.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        blocks = _blocks_of_channels(node, block_bytes)
        if blocks == 1:
            nodes.append(node)
            continue
        x, weight, *bias = node.inputs
        *pixels, channels = node.output.shape
        width = largest(channels) // blocks
        assert isinstance(node.operator, ops.Convolution)
        operator = replace(node.operator, group_outputs=width)
        parts = []
        for start in range(0, largest(channels), width):
            constants = (part(value, 0, start, width) for value in (weight, *bias))
            parts.append(append(nodes, node, operator, (x, *constants), (*pixels, width)))
        _join(nodes, node, parts)
        becomes(nodes[-1], node)
    graph.nodes = nodes


def _blocks_of_channels(node: Node, block_bytes: int) -> int:
    operator = node.operator
    if not isinstance(operator, ops.Convolution) or operator.kind is not ops.ConvolutionKind.REGULAR:
        return 1
    if operator.groups > 1 or not is_float(node) or dynamic_count(node.output.shape) > 1:
        return 1
    pixels, size = math.prod(map(largest, node.output.shape[:-1])), weight_bytes(node)
    if size < LARGE_ALONE * block_bytes or are_few(pixels):
        return 1
    return block_count(largest(node.output.shape[-1]), size, block_bytes)


def _join(nodes: list[Node], source: Node, parts: Sequence[Value]) -> None:
    """One value of all channels, in groups of the maximum size of XNNPACK's concatenation."""
    while len(parts) > 1:
        joined = []
        for at in range(0, len(parts), ops.CONCATENATE_LIMIT):
            group = tuple(parts[at : at + ops.CONCATENATE_LIMIT])
            shape = (*group[0].shape[:-1], sum(largest(part.shape[-1]) for part in group))
            whole = group[0] if len(group) == 1 else append(nodes, source, ops.Concatenate(3), group, shape)
            joined.append(whole)
        parts = joined
