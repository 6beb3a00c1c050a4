"""Rows of a table, or of a tensor, chosen by indices. For the Ethos-U85."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegatekit_api import argument
from delegatekit_toolkit.tosa import DType, Gather, Tensor

from ..ir.builder import Emitter, Lowering, Result
from ..ir.values import Value
from ..limits import count

if TYPE_CHECKING:
    from torch.fx import Node


def _embedded(b: Lowering, node: Node, result: Result) -> Value:
    """The table is constant, and gets the result's scale at once."""
    weight = argument(node, "weight")
    table = b.requantized(b.integers(weight).tensor, b.scale(weight), Result(result.scale))
    indices = _indices(b, argument(node, "indices"))
    rows = _gathered(b, table, b.reshaped(indices, (count(indices.shape),)))
    return Value.dense(b.clamped(b.reshaped(rows, (*indices.shape, table.shape[1])), result))


def _selected(b: Lowering, node: Node, result: Result) -> Value:
    operand = argument(node, "self")
    value, indices = b.integers(operand), _indices(b, argument(node, "index"))
    axis = argument(node, "dim") % len(value.order)
    order = (axis, *(other for other in value.order if other != axis))
    tensor = b.stored(value, order)
    flat = b.reshaped(tensor, (tensor.shape[0], count(tensor.shape[1:])))
    rows = _gathered(b, flat, b.reshaped(indices, (count(indices.shape),)))
    made = b.reshaped(rows, (rows.shape[0], *tensor.shape[1:]))
    return Value(b.requantized(made, b.scale(operand), result), order)


def _indices(b: Lowering, node: Node) -> Tensor:
    data = b.view_of_program.constant(node)
    if data is not None:
        return b.graph.constant(data.numpy(), DType.INT32, node.name)
    return b.contiguous(b.integers(node))


def _gathered(b: Lowering, table: Tensor, indices: Tensor) -> Tensor:
    """Rows of (K, C) by indices (W): (W, C)."""
    rows, (size,) = b.reshaped(table, (1, *table.shape)), indices.shape
    shape = (1, size, table.shape[1])
    made = b.emit(Gather(), (rows, b.reshaped(indices, (1, size))), shape, table.dtype, "rows")
    return b.reshaped(made, shape[1:])


EMITTERS: dict[str, Emitter] = {
    "aten.embedding.default": _embedded,
    "aten.index_select.default": _selected,
}
