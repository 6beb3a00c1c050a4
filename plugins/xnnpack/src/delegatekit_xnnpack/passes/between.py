"""Splits two products with elementwise functions between them: sum_i f(x A_i) B_i instead of f(x A) B."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from delegatekit_toolkit.sizes import largest

from ..ir import operators as ops
from ..ir.graph import Graph, Node, Value
from ..ir.types import DataType
from .blocking import append, are_few, becomes, block_count, is_product, part, rows, weight_bytes

#: With fewer blocks than this, weights stay in one piece between two products.
_LARGE_BETWEEN = 2

Users: TypeAlias = Mapping[Value, Sequence[Node | None]]


@dataclass(frozen=True)
class _Between:
    """The nodes between products of the same rows and the product that reads them all."""

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
        between = _between(node, users, position)
        blocks = 0 if between is None else _blocks_between(between, block_bytes)
        if between is not None and blocks > 1:
            replaced[node] = _split(between, blocks)
            dropped.update(between.nodes)
    graph.nodes = [item for node in graph.nodes if node not in dropped for item in replaced.get(node, (node,))]


def _between(last: Node, users: Users, position: Mapping[Node, int]) -> _Between | None:
    """The nodes that lead from products to a product, and nowhere else; None if there are none."""
    if not is_product(last):
        return None
    shape = last.inputs[0].shape
    nodes: set[Node] = set()
    pending = [last.inputs[0]]
    products = 0
    while pending:
        value = pending.pop()
        node = value.producer
        # A product that was split along its inputs is not split along its outputs, too: new nodes have no position.
        if node is None or node not in position or value.shape != shape:
            return None
        if node in nodes:
            continue
        nodes.add(node)
        if is_product(node):
            products += 1
        elif node.operator.is_elementwise and value.datatype is DataType.FLOAT32:
            pending += [operand for operand in node.inputs if operand.data is None]
        else:
            return None
    read_elsewhere = any(user is not last and user not in nodes for node in nodes for user in users[node.output])
    if read_elsewhere or not products:
        return None
    # As wide as the weight of the last product, which is a constant.
    return _Between(tuple(sorted(nodes, key=position.__getitem__)), last, largest(shape[-1]))


def _blocks_between(between: _Between, block_bytes: int) -> int:
    largest_weight = max(weight_bytes(node) for node in (*between.nodes, between.last) if is_product(node))
    # A single row takes the same time either way. So a method with single rows shares its weights with another.
    if largest_weight < _LARGE_BETWEEN * block_bytes or (rows(between.last) > 1 and are_few(rows(between.last))):
        return 1
    return block_count(between.width, largest_weight, block_bytes)


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
            done[node.output] = append(nodes, node, node.operator, inputs, shape)
        last = between.last
        weight = part(last.inputs[1], 0 if last.operator.transposed else 1, start, width)  # type: ignore[attr-defined]
        bias = last.inputs[2:] if total is None else ()
        product = append(nodes, last, last.operator, (done[last.inputs[0]], weight, *bias), last.output.shape)
        total = product if total is None else _sum(nodes, last, total, product)
    becomes(nodes[-1], between.last)
    return nodes


def _block_of_inputs(node: Node, start: int, width: int, done: Mapping[Value, Value]) -> tuple[Value, ...]:
    """The operands of a node for some of its columns."""
    if is_product(node):
        x, weight, *bias = node.inputs
        axis = 1 if node.operator.transposed else 0  # type: ignore[attr-defined]
        return (x, part(weight, axis, start, width), *(part(value, 0, start, width) for value in bias))
    return tuple(
        part(value, len(value.shape) - 1, start, width) if value.data is not None else done[value]
        for value in node.inputs
    )


def _sum(nodes: list[Node], source: Node, left: Value, right: Value) -> Value:
    return append(nodes, source, ops.Binary(ops.BinaryKind.ADD), (left, right), left.shape)
