"""Matrix products: linear layers, and general ones with a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...targets import MOST_ROUNDS, rounds
from ..calls import Kernel, Reader
from ..memory import Value
from ..strided import copy, permuted, strides, tape_error, viewed
from ..tape import Tape

if TYPE_CHECKING:
    import numpy as np

#: Columns that an invocation computes.
BLOCK: Final = 8
#: Bytes of a part of a packed weight: less than every device's limit for bindings.
_MOST_PACKED: Final = 64 << 20
#: With this many uses of each element or more, a matrix is copied so that its rows are whole vectors.
_WORTH_PACKING: Final = 64


@dataclass(frozen=True)
class Matrices:
    """Matrices in memory, one after the other."""

    value: Value
    #: Elements from one row to the next, and from one matrix to the next (0: there is one for all).
    row: int
    step: int = 0

    @property
    def are_vectors(self) -> bool:
        """True if every row begins at a multiple of four elements."""
        return self.row % 4 == 0 and self.step % 4 == 0 and self.row > 0


@dataclass(frozen=True, kw_only=True)
class PackedMatrix(Matrices):
    """A constant matrix of integers as shaders/matmul.comp unpacks it, with scales for groups of its rows.

    A row has its columns, up to a multiple of 8.
    """

    #: Of an integer: 8 or 4.
    bits: int
    #: The scales of the first group's columns, then of the next group's.
    scales: Value
    #: Rows of a group, by fours.
    fours: int


@dataclass(frozen=True)
class Bias:
    """The summand of a product: strides from one matrix, row and column to the next."""

    value: Value
    step: int
    row: int
    column: int
    factor: float = 1.0


def multiply(
    tape: Tape,
    left: Matrices,
    right: Matrices,
    target: Value,
    inner: int,
    *,
    alpha: float = 1.0,
    bias: Bias | None = None,
    first_column: int = 0,
    these_columns: int | None = None,
) -> None:
    """Write alpha * left @ right + bias into a target (batch..., rows, columns), or into some of its columns."""
    *batch, rows, columns = target.shape
    these = columns if these_columns is None else these_columns
    batches = math.prod(batch)
    if not target.count:
        return
    if _rounds(left, right, inner) > MOST_ROUNDS:
        raise tape_error(tape, f"sums products of {inner} elements: {4 * MOST_ROUNDS} are the most")
    block = next(size for size in (1, 2, 4, 8) if size >= min(rows, 8))
    added = bias or Bias(left.value, 0, 0, 0, 0.0)
    push: tuple[int | float, ...] = (
        *(batches, rows, columns, first_column, these, inner),
        *(left.step, right.step, left.row, right.row),
        *(added.step, added.row, added.column, float(alpha), float(added.factor)),
    )
    vectors = columns % 4 == 0 and first_column % 4 == 0
    constants = (target.is_half, block, left.are_vectors, right.are_vectors, vectors, bias is not None)
    items = batches * -(-rows // block) * -(-these // BLOCK)
    shader = "matmul_float"
    factors: tuple[Value, ...] = (right.value,)
    if isinstance(right, PackedMatrix):
        shader, factors, push = f"matmul_int{right.bits}", (right.value, right.scales), (*push, right.fours)
    tape.dispatch(shader, (left.value, *factors, added.value, target), push, constants, items=items)


def _rounds(left: Matrices, right: Matrices, inner: int) -> int:
    """Loop rounds of an invocation."""
    if isinstance(right, PackedMatrix):
        return rounds(-(-inner // (4 * right.fours)), right.fours)
    return -(-inner // 4) if left.are_vectors else inner


def matrices(tape: Tape, value: Value, uses: int) -> Matrices:
    """A computed value (batch..., rows, columns); its rows become whole vectors if that pays off."""
    *batch, rows, columns = value.shape
    if columns % 4 == 0 or (uses < _WORTH_PACKING and columns <= MOST_ROUNDS) or not value.count:
        return Matrices(value, columns, rows * columns if math.prod(batch) > 1 else 0)
    width = -(-columns // 4) * 4
    count = math.prod(batch)
    made = tape.scratch((*batch, rows, width))
    copy(tape, value, made, (count * rows, columns), (columns, 1), (width, 1))
    return Matrices(made, width, rows * width if count > 1 else 0)


# -- linear layers -----------------------------------------------------------------------------------------------------


def _linear(tape: Tape, call: Reader) -> None:
    value, weight = call.tensor(0), call.declared(1)
    bias = call.optional(2)
    if weight.rank != 2 or value.rank < 1 or value.shape[-1] != weight.sizes[1]:
        raise call.error(f"multiplies {value.shape} by the transpose of {weight.sizes}")
    columns, inner = weight.sizes
    target = tape.result(call.result, (*value.shape[:-1], columns))
    flat = Value((math.prod(value.shape[:-1]), columns), target.datatype, target.block)
    if bias is not None and bias.count not in (1, columns):
        raise call.error(f"adds a bias of {bias.count} elements to {columns} columns")
    added = None if bias is None else Bias(bias, 0, 0, int(bias.count > 1))
    _check_floats(call, value, target, bias)
    left = matrices(tape, viewed(value, (flat.shape[0], inner)), columns)
    if not call.is_constant(1):
        turned = permuted(tape, call.tensor(1), (1, 0))
        multiply(tape, left, matrices(tape, turned, flat.shape[0]), flat, inner, bias=added)
        return
    _multiply_constant(tape, call, left, flat, inner, 1, transposed=True, bias=added)


def _multiply_constant(
    tape: Tape,
    call: Reader,
    left: Matrices,
    target: Value,
    inner: int,
    position: int,
    *,
    transposed: bool,
    alpha: float = 1.0,
    bias: Bias | None,
) -> None:
    """By a constant matrix, packed once; a large one in parts."""
    weight = call.declared(position)
    if not weight.datatype.is_float:
        raise call.error(f"multiplies by {weight.datatype.name}")
    for first, count in column_parts(target.shape[-1], 4 * inner):
        width = -(-count // BLOCK) * BLOCK

        def pack(
            elements: np.ndarray[Any, Any], first: int = first, count: int = count, width: int = width
        ) -> np.ndarray[Any, Any]:
            import numpy as np

            chosen = elements.T if transposed else elements
            made = np.zeros((inner, width), elements.dtype)
            made[:, :count] = chosen[:, first : first + count]
            return made

        packed = tape.constant(weight, (inner * width,), ("columns", transposed, first, count), pack)
        multiply(
            tape,
            left,
            Matrices(packed, width),
            target,
            inner,
            alpha=alpha,
            bias=bias,
            first_column=first,
            these_columns=count,
        )


def column_parts(columns: int, size: int) -> Iterator[tuple[int, int]]:
    """The first column and the number of columns of each part of a packed matrix, for columns of this many bytes."""
    most = max(_MOST_PACKED // max(size, 1) // BLOCK, 1) * BLOCK
    for first in range(0, columns, most):
        yield first, min(most, columns - first)


# -- general products --------------------------------------------------------------------------------------------------


def _mm(tape: Tape, call: Reader) -> None:
    _matrix_product(tape, call, 0)


def _addmm(tape: Tape, call: Reader) -> None:
    beta, alpha = call.number(3), call.number(4)
    _matrix_product(tape, call, 1, alpha=alpha, beta=beta)


def _matrix_product(tape: Tape, call: Reader, first: int, *, alpha: float = 1.0, beta: float = 0.0) -> None:
    """Arguments `first` and the next; with `first` 1, argument 0 times `beta` is added."""
    left, right = call.tensor(first, 2), call.declared(first + 1)
    shape = right.sizes if call.is_constant(first + 1) else call.tensor(first + 1).shape
    if len(shape) != 2 or left.shape[1] != shape[0]:
        raise call.error(f"multiplies {left.shape} by {shape}")
    (rows, inner), columns = left.shape, shape[1]
    target = tape.result(call.result, (rows, columns))
    bias = None
    if first and beta != 0:  # PyTorch ignores an operand multiplied by 0
        bias = _broadcast_bias(call, call.tensor(0), (rows, columns), beta)
    _check_floats(call, left, target, None if bias is None else bias.value)
    if call.is_constant(first + 1):
        found = matrices(tape, left, columns)
        _multiply_constant(tape, call, found, target, inner, first + 1, transposed=False, alpha=alpha, bias=bias)
        return
    value = call.tensor(first + 1)
    _check_floats(call, value)
    multiply(tape, matrices(tape, left, columns), matrices(tape, value, rows), target, inner, alpha=alpha, bias=bias)


def _broadcast_bias(call: Reader, bias: Value, shape: tuple[int, int], factor: float) -> Bias:
    padded = (1,) * (2 - bias.rank) + bias.shape
    if len(padded) != 2 or any(size not in (1, wanted) for size, wanted in zip(padded, shape, strict=True)):
        raise call.error(f"adds {bias.shape} to {shape}")
    row, column = (step if size > 1 else 0 for size, step in zip(padded, strides(padded), strict=True))
    return Bias(bias, 0, row, column, factor)


def _bmm(tape: Tape, call: Reader) -> None:
    left, right = call.tensor(0, 3), call.tensor(1, 3)
    if left.shape[0] != right.shape[0] or left.shape[2] != right.shape[1]:
        raise call.error(f"multiplies {left.shape} by {right.shape}")
    batch, rows, inner = left.shape
    target = tape.result(call.result, (batch, rows, right.shape[2]))
    _check_floats(call, left, right, target)
    multiply(tape, matrices(tape, left, right.shape[2]), matrices(tape, right, rows), target, inner)


def _check_floats(call: Reader, *values: Value | None) -> None:
    if not all(value is None or value.is_float for value in values):
        raise call.error("multiplies integers")


KERNELS: Final[dict[str, Kernel]] = {
    "aten.linear.default": _linear,
    "aten.mm.default": _mm,
    "aten.bmm.default": _bmm,
    "aten.addmm.default": _addmm,
}
