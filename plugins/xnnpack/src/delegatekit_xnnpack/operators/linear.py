"""Matrix products: linear layers and general matmul."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import matrix_weight
from delegatekit_toolkit.layout import identity, inverse, moves_elements
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir import operators as ops
from ..ir.graph import Value
from ..ir.joined import Joined, parts_of, reshape_obstacle, with_last_joined
from ..ir.layout import Tensor
from ..ir.operators import BinaryKind
from .groups import source_of
from .precision import short_rows
from .program import Lower, ProgramBuilder


def fully_connected(b: ProgramBuilder, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., I) @ weight (O, I)^T + bias (O,).

    Only the last axis of `x` must be stored last; the others may have any order. A weight stored (I, O) is used without
    a transpose.
    """
    order = x.order
    if order[-1] != len(order) - 1:
        order = identity(len(order))
    transposed = weight.order == (1, 0)
    inputs = [b.stored(x, order), weight.value]
    if bias is not None:
        inputs.append(b.dense(bias))
    return Tensor(b.emit(ops.FullyConnected(transposed), *inputs), order)


def _row_by_row(b: ProgramBuilder, call: Call, rows: Operand, product: Callable[[Tensor], Tensor]) -> Tensor | Joined:
    """A product of rows (..., I), whose leading axes may be groups: they stay unchanged."""
    joined = b.joined(rows)
    axes = with_last_joined(joined.axes) if source_of(call) == rows else None
    if axes is None or len(axes) == len(parts_of(axes)):
        return product(b.tensor(rows))
    return Joined(product(b.reshape(joined.parts, parts_of(axes))), tuple(map(len, axes)))


def _linear(b: ProgramBuilder, call: Call) -> Tensor | Joined:
    weight, bias = b.product_weight(call["weight"]), call["bias"]
    shift = None if bias is None else b.tensor(bias)
    return _row_by_row(b, call, call["input"], lambda x: fully_connected(b, x, weight, shift))


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
        # The stock runtime computes wrong numbers for a transposed value times itself, but not with the flag.
        rank = len(right.shape)
        value, transposed = b.dense(right.permuted((*range(rank - 2), rank - 1, rank - 2))), True
    return Tensor.dense(b.emit(ops.BatchMatrixMultiply(transposed), first, value))


def _common_batch_order(left: Tensor, right: Tensor) -> tuple[int, ...] | None:
    """The permutation of the batch axes to the order in which both operands store them, if it is another one."""
    rank = len(left.order)
    sequences = {inverse(tensor.order)[:-2] for tensor in (left, right)}
    if len(right.order) != rank or len(sequences) != 1:
        return None
    (sequence,) = sequences
    stored_so = sequence != tuple(range(rank - 2)) and set(sequence) == set(range(rank - 2))
    return (*sequence, rank - 2, rank - 1) if stored_so else None


def _right_operand(b: ProgramBuilder, right: Tensor) -> tuple[Value, bool]:
    """The right operand as (..., K, N), or as (..., N, K) and True, whichever needs less transposition."""
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


def matrix_operands(call: Call) -> str | None:
    """If several sizes change, both operands are matrices or stacks of these."""
    shape, ranks = shape_of(call.result), {operand.rank for operand in call.operands}
    return reshape_obstacle((*shape, 1), shape) if 1 in ranks else None


def _right(b: ProgramBuilder, operand: Operand) -> Tensor:
    """The right operand of a product: a matrix is a weight, others are operands like the left one."""
    return b.product_weight(operand) if operand.rank == 2 else b.tensor(operand)


def _matmul(b: ProgramBuilder, call: Call) -> Tensor | Joined:
    rows, columns = call["self"], call["other" if call.has("other") else "mat2"]
    if source_of(call) is not None:
        weight = b.product_weight(columns)
        return _row_by_row(b, call, rows, lambda x: matmul(b, x, weight))
    left, right = b.tensor(rows), _right(b, columns)
    if len(left.shape) == 1:
        left = b.reshape(left, (1, *left.shape))
    if len(right.shape) == 1:
        right = b.reshape(right, (*right.shape, 1))
    return b.reshape(matmul(b, left, right), shape_of(call.result))


def unscaled(call: Call) -> str | None:
    """alpha and beta are 1."""
    for name in ("alpha", "beta"):
        if call[name] != 1:
            return f"{name} = {call[name]}: only 1 is taken"
    return None


def _addmm(b: ProgramBuilder, call: Call) -> Tensor | Joined:
    rows, right, bias = call["mat1"], b.product_weight(call["mat2"]), call["self"]
    shift = b.tensor(bias)
    if shift.shape == shape_of(call.result)[1:]:
        return _row_by_row(b, call, rows, lambda x: fully_connected(b, x, right.permuted((1, 0)), shift))
    return b.binary(BinaryKind.ADD, shift, matmul(b, b.tensor(rows), right))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("linear.default", _linear, matrix_weight(), keep=True, float16=short_rows),
    row("mm.default bmm.default", _matmul, float16=short_rows),
    row("matmul.default", _matmul, matrix_operands, keep=True, float16=short_rows),
    row("addmm.default", _addmm, unscaled, float16=short_rows),
)
