"""Cuts large matrix products into blocks whose weights stay in the cache while all rows meet them.

XNNPACK takes a few rows at a time through the whole weight. A weight larger than the cache is then read from memory
again for every few rows, and the product waits for it. These forms of cutting cost next to nothing beside that:

* two products with elementwise functions between, as transformers have them: block by block of what lies between,
  whose contributions to the second product are added up (`split_between`);
* any other large product: a batch of products, one for each block of columns, brought into order by a transpose
  (`batch_columns`);
* a convolution with a large filter: several convolutions, whose results are joined (`split_channels`).

The numbers stay the same up to the order of sums. `benchmarks/runtime.py` measures what it gains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delegatekit_toolkit.sizes import Dynamic, dynamic_count, largest

from . import operators as ops
from .graph import DataType, Graph, Node, Shape, Value, static

if TYPE_CHECKING:
    import torch

#: Weights of so many blocks stay in one piece between two products, if there are fewer; ...
_LARGE_BETWEEN = 2
#: ... and here, where a copy of the result must pay off.
_LARGE_ALONE = 5
#: Fewer rows go through the weight at once, or nearly.
_FEWEST_ROWS = 16
#: Blocks are a multiple of so many columns, which fill whole vectors.
_COLUMN_STEP = 16

Users = Mapping[Value, Sequence[Node]]


def block_products(graph: Graph, block_bytes: int) -> None:
    """Cut every product that gains from it. What is not read any more stays in the graph.

    The weights of a block are at most `block_bytes` large; 0 leaves all products whole.
    """
    if block_bytes:
        split_between(graph, block_bytes)
        batch_columns(graph, block_bytes)


# -- two products ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Between:
    """What lies between products of the same rows and the product that reads them all."""

    #: The first products and the elementwise nodes, in the graph's order.
    nodes: tuple[Node, ...]
    last: Node
    #: Elements of a row between the products.
    width: int


def split_between(graph: Graph, block_bytes: int) -> None:
    """Compute sum_i f(x A_i) B_i instead of f(x A) B, where f is elementwise and A or B large."""
    users = graph.users()
    position = {node: index for index, node in enumerate(graph.nodes)}
    replaced: dict[Node, list[Node]] = {}
    dropped: set[Node] = set()
    for node in graph.nodes:
        between = _between(node, users, graph.outputs, position)
        blocks = 0 if between is None else _blocks_between(between, block_bytes)
        if between is not None and blocks > 1:
            replaced[node] = _split(between, blocks)
            dropped.update(between.nodes)
    graph.nodes = [item for node in graph.nodes if node not in dropped for item in replaced.get(node, (node,))]


def _between(last: Node, users: Users, outputs: Sequence[Value], position: Mapping[Node, int]) -> _Between | None:
    """What leads from products to a product, and nowhere else; None if there is no such thing."""
    if not _is_product(last) or last.clamp is not None:
        return None
    shape = last.inputs[0].shape
    nodes: set[Node] = set()
    pending = [last.inputs[0]]
    products = 0
    while pending:
        value = pending.pop()
        node = value.producer
        # A product that has been cut along its inputs is not cut along its outputs, too: what is new has no position.
        if node is None or node not in position or value.shape != shape or value in outputs:
            return None
        if node in nodes:
            continue
        nodes.add(node)
        if _is_product(node):
            products += 1
        elif node.operator.is_elementwise and value.datatype is DataType.FLOAT32:
            pending += [operand for operand in node.inputs if operand.data is None]
        else:
            return None
    read_elsewhere = any(user is not last and user not in nodes for node in nodes for user in users[node.output])
    if read_elsewhere or not products or isinstance(shape[-1], Dynamic):
        return None
    return _Between(tuple(sorted(nodes, key=position.__getitem__)), last, shape[-1])


def _blocks_between(between: _Between, block_bytes: int) -> int:
    largest_weight = max(_weight_bytes(node) for node in (*between.nodes, between.last) if _is_product(node))
    # A single row takes the same time either way. So a method that takes one at a time shares its weights with another.
    if largest_weight < _LARGE_BETWEEN * block_bytes or 1 < _rows(between.last) < _FEWEST_ROWS:
        return 1
    return _block_count(between.width, largest_weight, block_bytes)


def _split(between: _Between, blocks: int) -> list[Node]:
    """The nodes block by block, and the sum of the last products."""
    width = between.width // blocks
    nodes: list[Node] = []
    total: Value | None = None
    for start in range(0, between.width, width):
        done: dict[Value, Value] = {}
        for node in between.nodes:
            inputs = _block_of_inputs(node, start, width, done)
            shape = (*node.output.shape[:-1], width)
            done[node.output] = _append(nodes, node, node.operator, inputs, shape)
        last = between.last
        weight = _part(last.inputs[1], 0 if last.operator.transposed else 1, start, width)  # type: ignore[attr-defined]
        bias = last.inputs[2:] if total is None else ()
        product = _append(nodes, last, last.operator, (done[last.inputs[0]], weight, *bias), last.output.shape)
        total = product if total is None else _sum(nodes, last, total, product)
    _becomes(nodes[-1], between.last)
    return nodes


def _block_of_inputs(node: Node, start: int, width: int, done: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The operands of a node for some of its columns."""
    if _is_product(node):
        x, weight, *bias = node.inputs
        axis = 1 if node.operator.transposed else 0  # type: ignore[attr-defined]
        return (x, _part(weight, axis, start, width), *(_part(value, 0, start, width) for value in bias))
    return tuple(
        _part(value, len(value.shape) - 1, start, width) if value.data is not None else done[value]
        for value in node.inputs
    )


def _part(value: Value, axis: int, start: int, width: int) -> Value:
    """Some of a constant along an axis; all of it where it is broadcast along it."""
    if not value.shape or value.shape[axis] == 1:
        return value
    assert value.data is not None
    data = value.data.reshape(static(value.shape)).narrow(axis, start, width)
    return Value(tuple(data.shape), value.datatype, data)


def _sum(nodes: list[Node], source: Node, left: Value, right: Value) -> Value:
    return _append(nodes, source, ops.Binary(ops.BinaryKind.ADD), (left, right), left.shape)


# -- columns ---------------------------------------------------------------------------------------------------------


def batch_columns(graph: Graph, block_bytes: int) -> None:
    """Compute blocks of columns of x A for themselves, where A is large."""
    nodes: list[Node] = []
    for node in graph.nodes:
        blocks = _blocks_of_columns(node, block_bytes)
        if blocks == 1:
            nodes.append(node)
            continue
        x = node.inputs[0]
        rows, width = math.prod(x.shape[:-1]), largest(node.output.shape[-1]) // blocks
        flat = _reshaped(nodes, node, x, (1, rows, x.shape[-1]))
        value = _batched(nodes, node, flat, blocks, width)
        value = _append(nodes, node, ops.Transpose((1, 0, 2)), (value,), (rows, blocks, width))
        value = _reshaped(nodes, node, value, node.output.shape)
        _becomes(nodes[-1], node)
    graph.nodes = nodes


def _batched(nodes: list[Node], product: Node, x: Value, blocks: int, width: int) -> Value:
    """The product of x (1, rows, I) with each block of the weight's outputs: (blocks, rows, width)."""
    _, weight, *bias = product.inputs
    assert weight.data is not None
    data = weight.data.reshape(static(weight.shape))
    if product.operator.transposed:  # type: ignore[attr-defined]
        data = data.t()
    operands = (x, _constant(data.reshape(blocks, width, -1)))
    value = _append(nodes, product, ops.BatchMatrixMultiply(transposed=True), operands, (blocks, x.shape[1], width))
    for shift in bias:
        assert shift.data is not None
        operands = (value, _constant(shift.data.reshape(blocks, 1, width)))
        value = _append(nodes, product, ops.Binary(ops.BinaryKind.ADD), operands, value.shape)
    return value


def _constant(data: torch.Tensor) -> Value:
    return Value(tuple(data.shape), data=data)


def _blocks_of_columns(node: Node, block_bytes: int) -> int:
    if not _is_product(node) or node.clamp is not None or dynamic_count(node.output.shape) > 1:
        return 1
    if _weight_bytes(node) < _LARGE_ALONE * block_bytes or _rows(node) < _FEWEST_ROWS:
        return 1
    return _block_count(largest(node.output.shape[-1]), _weight_bytes(node), block_bytes)


# -- channels --------------------------------------------------------------------------------------------------------


def split_channels(graph: Graph, block_bytes: int) -> None:
    """Compute blocks of a convolution's output channels by themselves, where its filter is large.

    Clamps have been folded before: every block has its own.
    """
    nodes: list[Node] = []
    for node in graph.nodes:
        blocks = _blocks_of_channels(node, block_bytes) if block_bytes else 1
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
            constants = (_part(value, 0, start, width) for value in (weight, *bias))
            parts.append(_append(nodes, node, operator, (x, *constants), (*pixels, width)))
        _join(nodes, node, parts)
        _becomes(nodes[-1], node)
    graph.nodes = nodes


def _blocks_of_channels(node: Node, block_bytes: int) -> int:
    operator = node.operator
    if not isinstance(operator, ops.Convolution) or operator.kind is not ops.ConvolutionKind.REGULAR:
        return 1
    if operator.groups > 1 or not _is_float(node) or dynamic_count(node.output.shape) > 1:
        return 1
    pixels, size = math.prod(map(largest, node.output.shape[:-1])), _weight_bytes(node)
    if size < _LARGE_ALONE * block_bytes or pixels < _FEWEST_ROWS:
        return 1
    return _block_count(largest(node.output.shape[-1]), size, block_bytes)


def _join(nodes: list[Node], source: Node, parts: Sequence[Value]) -> None:
    """One value of all channels, in groups of as many as XNNPACK joins at once."""
    while len(parts) > 1:
        joined = []
        for at in range(0, len(parts), ops.CONCATENATE_LIMIT):
            group = tuple(parts[at : at + ops.CONCATENATE_LIMIT])
            shape = (*group[0].shape[:-1], sum(largest(part.shape[-1]) for part in group))
            whole = group[0] if len(group) == 1 else _append(nodes, source, ops.Concatenate(3), group, shape)
            joined.append(whole)
        parts = joined


# -- shared ----------------------------------------------------------------------------------------------------------


def _is_product(node: Node) -> bool:
    """Whether a node multiplies rows with a constant float32 weight."""
    return isinstance(node.operator, ops.FullyConnected) and _is_float(node)


def _is_float(node: Node) -> bool:
    """Whether all is float32, and all but the first operand constant."""
    constants = all(value.data is not None for value in node.inputs[1:])
    return constants and all(value.datatype is DataType.FLOAT32 for value in node.inputs)


def _rows(node: Node) -> int:
    """The most rows that a product has in a call."""
    return math.prod(map(largest, node.inputs[0].shape[:-1]))


def _weight_bytes(node: Node) -> int:
    return 4 * math.prod(static(node.inputs[1].shape))


def _block_count(columns: int, bytes: int, block_bytes: int) -> int:
    """The fewest blocks of equal width whose weights are small enough; 1 if there are none."""
    fewest = -(-bytes // block_bytes)
    steps, rest = divmod(columns, _COLUMN_STEP)
    counts = range(fewest, min(2 * fewest, steps) + 1)
    return 1 if rest else next((count for count in counts if steps % count == 0), 1)


def _reshaped(nodes: list[Node], source: Node, value: Value, shape: Shape) -> Value:
    if value.shape == shape:
        return value
    sizes = tuple(0 if isinstance(size, Dynamic) else size for size in shape)
    return _append(nodes, source, ops.Reshape(sizes), (value,), shape)


def _append(nodes: list[Node], source: Node, operator: ops.Operator, inputs: tuple[Value, ...], shape: Shape) -> Value:
    """The output of a new node that does a part of what `source` did."""
    output = Value(shape)
    clamp = None if isinstance(operator, ops.Concatenate) else source.clamp
    output.producer = Node(operator, inputs, output, clamp, source.debug_handles)
    nodes.append(output.producer)
    return output


def _becomes(node: Node, replaced: Node) -> None:
    """Let a node compute the output of another one."""
    node.output = replaced.output
    node.output.producer = node
    node.debug_handles = tuple(dict.fromkeys((*node.debug_handles, *replaced.debug_handles)))
