"""Matrix products: linear layers and general matmul."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import operators as ops
from ..arguments import argument, rank_of, shape_of
from ..graph import Value
from ..layout import Tensor, moves_elements
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


def _linear(b: ProgramBuilder, node: Node) -> Tensor:
    bias = argument(node, "bias")
    weight = b.tensor(argument(node, "weight"))
    return fully_connected(b, b.tensor(argument(node, "input")), weight, None if bias is None else b.tensor(bias))


def matmul(b: ProgramBuilder, left: Tensor, right: Tensor) -> Tensor:
    """left (..., M, K) @ right (..., K, N), both of rank 2 or more, batch axes broadcast."""
    if len(right.shape) == 2:
        return fully_connected(b, left, right.permuted((1, 0)), None)
    value, transposed = _right_operand(b, right)
    return Tensor.dense(b.emit(ops.BatchMatrixMultiply(transposed), b.dense(left), value))


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


def _matmul(b: ProgramBuilder, node: Node) -> Tensor:
    left, right = (b.tensor(operand) for operand in node.args[:2])  # type: ignore[arg-type]
    if len(left.shape) == 1:
        left = b.reshape(left, (1, *left.shape))
    if len(right.shape) == 1:
        right = b.reshape(right, (*right.shape, 1))
    return b.reshape(matmul(b, left, right), shape_of(node))


def _addmm(b: ProgramBuilder, node: Node) -> Tensor:
    left, right = b.tensor(argument(node, "mat1")), b.tensor(argument(node, "mat2"))
    bias = argument(node, "self")
    if rank_of(bias) == 1 and shape_of(bias)[0] == shape_of(node)[1]:
        return fully_connected(b, left, right.permuted((1, 0)), b.tensor(bias))
    return b.binary(BinaryKind.ADD, b.tensor(bias), matmul(b, left, right))


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
