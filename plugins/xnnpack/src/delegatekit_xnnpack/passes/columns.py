"""Splits the weight of a large product into blocks of columns: a batch of products."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from delegatekit_toolkit.sizes import dynamic_count, largest

from ..ir import operators as ops
from ..ir.graph import Graph, Node, Value
from ..ir.types import static
from .blocking import LARGE_ALONE, append, are_few, becomes, block_count, is_product, reshaped, rows, weight_bytes

if TYPE_CHECKING:
    import torch


def batch_columns(graph: Graph, block_bytes: int) -> None:
    """Compute blocks of columns of x A separately, if A is large."""
    nodes: list[Node] = []
    for node in graph.nodes:
        blocks = _blocks_of_columns(node, block_bytes)
        if blocks == 1:
            nodes.append(node)
            continue
        x = node.inputs[0]
        rows, width = math.prod(x.shape[:-1]), largest(node.output.shape[-1]) // blocks
        flat = reshaped(nodes, node, x, (1, rows, x.shape[-1]))
        value = _batched(nodes, node, flat, blocks, width)
        value = append(nodes, node, ops.Transpose((1, 0, 2)), (value,), (rows, blocks, width))
        value = reshaped(nodes, node, value, node.output.shape)
        becomes(nodes[-1], node)
    graph.nodes = nodes


def _batched(nodes: list[Node], product: Node, x: Value, blocks: int, width: int) -> Value:
    """The product of x (1, rows, I) with each block of the weight's outputs: (blocks, rows, width)."""
    _, weight, *bias = product.inputs
    assert weight.data is not None
    data = weight.data.reshape(static(weight.shape))
    if product.operator.transposed:  # type: ignore[attr-defined]
        data = data.t()
    operands = (x, _constant(data.reshape(blocks, width, -1)))
    value = append(nodes, product, ops.BatchMatrixMultiply(transposed=True), operands, (blocks, x.shape[1], width))
    for shift in bias:
        assert shift.data is not None
        operands = (value, _constant(shift.data.reshape(blocks, 1, width)))
        value = append(nodes, product, ops.Binary(ops.BinaryKind.ADD), operands, value.shape)
    return value


def _constant(data: torch.Tensor) -> Value:
    return Value(tuple(data.shape), data=data)


def _blocks_of_columns(node: Node, block_bytes: int) -> int:
    if not is_product(node) or dynamic_count(node.output.shape) > 1:
        return 1
    if weight_bytes(node) < LARGE_ALONE * block_bytes or are_few(rows(node)):
        return 1
    return block_count(largest(node.output.shape[-1]), weight_bytes(node), block_bytes)
