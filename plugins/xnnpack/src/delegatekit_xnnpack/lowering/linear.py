"""Matrix products: linear layers and general matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import operators as ops
from ..arguments import argument, rank_of, shape_of
from ..graph import Value
from ..joined import Joined, parts_of, source_of, with_last_joined
from ..layout import Tensor, inverse, moves_elements
from ..operators import BinaryKind
from .context import Lowering, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node


def fully_connected(b: ProgramBuilder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., I) @ weight (O, I)^T + bias (O,).

    Only the last axis of `x` must be stored last; the others may lie in any order. A weight stored (I, O) is used as
    it is.
    """
    order = x.order
    if order and order[-1] != len(order) - 1:
        order = tuple(range(len(order)))
    transposed = weight.order == (1, 0)
    inputs = [b.stored(x, order), weight.value]
    if bias is not None:
        inputs.append(b.dense(bias))
    return Tensor(b.emit(ops.FullyConnected(transposed), *inputs), order)


def _row_by_row(b: ProgramBuilder, node: Node, rows: Node, product: Callable[[Tensor], Tensor]) -> Tensor | Joined:
    """A product of rows (..., I), whose leading axes may be groups: they stay as they are."""
    joined = b.joined(rows)
    axes = with_last_joined(joined.axes) if source_of(node) is rows else None
    if axes is None or len(axes) == len(parts_of(axes)):
        return product(b.tensor(rows))
    return Joined(product(b.reshape(joined.parts, parts_of(axes))), tuple(map(len, axes)))


def _linear(b: ProgramBuilder, node: Node) -> Tensor | Joined:
    weight, bias = b.product_weight(argument(node, "weight")), argument(node, "bias")
    shift = None if bias is None else b.tensor(bias)
    return _row_by_row(b, node, argument(node, "input"), lambda x: fully_connected(b, x, weight, shift))


def matmul(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """left (..., M, K) @ right (..., K, N), both of rank 2 or more, batch axes broadcast."""
    if len(right.shape) == 2:
        return fully_connected(b, left, right.permuted((1, 0)), None)
    order = _common_batch_order(left, right)
    if order is not None:
        product = matmul(b, left.permuted(order), right.permuted(order))
        return product.permuted(inverse(order))
    first = b.dense(left)
    value, transposed = _right_operand(b, right)
    producer = first.producer
    if value is first and not transposed and producer is not None and isinstance(producer.operator, ops.Transpose):
        # The stock runtime gives wrong numbers for a transposed value times itself, but not with the flag.
        rank = len(right.shape)
        value, transposed = b.dense(right.permuted((*range(rank - 2), rank - 1, rank - 2))), True
    return Tensor.dense(b.emit(ops.BatchMatrixMultiply(transposed), first, value))


def _common_batch_order(left: Tensor, right: Tensor) -> tuple[int, ...] | None:
    """The permutation that brings the batch axes into the order in which both operands store them, if it is another."""
    rank = len(left.order)
    sequences = {inverse(tensor.order)[:-2] for tensor in (left, right)}
    if len(right.order) != rank or len(sequences) != 1:
        return None
    (sequence,) = sequences
    stored_so = sequence != tuple(range(rank - 2)) and set(sequence) == set(range(rank - 2))
    return (*sequence, rank - 2, rank - 1) if stored_so else None


def _right_operand(b: ProgramBuilder, right: Tensor) -> tuple[Value, bool]:
    """The right operand as (..., K, N), or as (..., N, K) and True, whichever is the lesser transpose."""
    rank = len(right.shape)
    flipped = right.permuted((*range(rank - 2), rank - 1, rank - 2))
    if not _is_moved(right):
        return b.dense(right), False
    # A transpose that leaves the innermost axis in place copies whole rows.
    if not _is_moved(flipped) or flipped.order[-1] == rank - 1:
        return b.dense(flipped), True
    return b.dense(right), False


def _is_moved(tensor: Tensor) -> bool:
    return moves_elements(tensor.value.shape, tensor.order)


def _right(b: ProgramBuilder, node: Node) -> Tensor:
    """The right operand of a product: a matrix is a weight, others are operands like the left one."""
    return b.product_weight(node) if rank_of(node) == 2 else b.tensor(node)


def _matmul(b: ProgramBuilder, node: Node) -> Tensor | Joined:
    if source_of(node) is not None:
        weight = b.product_weight(node.args[1])  # type: ignore[arg-type]
        return _row_by_row(b, node, node.args[0], lambda x: matmul(b, x, weight))  # type: ignore[arg-type]
    left, right = b.tensor(node.args[0]), _right(b, node.args[1])  # type: ignore[arg-type]
    if len(left.shape) == 1:
        left = b.reshape(left, (1, *left.shape))
    if len(right.shape) == 1:
        right = b.reshape(right, (*right.shape, 1))
    return b.reshape(matmul(b, left, right), shape_of(node))


def _addmm(b: ProgramBuilder, node: Node) -> Tensor | Joined:
    rows, right, bias = argument(node, "mat1"), b.product_weight(argument(node, "mat2")), argument(node, "self")
    shift = b.tensor(bias)
    if shift.shape == shape_of(node)[1:]:
        return _row_by_row(b, node, rows, lambda x: fully_connected(b, x, right.permuted((1, 0)), shift))
    return b.binary(BinaryKind.ADD, shift, matmul(b, b.tensor(rows), right))


def _baddbmm(b: ProgramBuilder, node: Node) -> Tensor:
    product = matmul(b, b.tensor(argument(node, "batch1")), b.tensor(argument(node, "batch2")))
    return b.binary(BinaryKind.ADD, b.tensor(argument(node, "self")), product)


LOWERINGS: dict[str, Lowering] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _matmul,
    "aten.bmm.default": _matmul,
    "aten.matmul.default": _matmul,
    "aten.addmm.default": _addmm,
    "aten.baddbmm.default": _baddbmm,
}
