"""Building blocks that several families share: axis orders of several operands, arithmetic, constraints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Constraint

from ..ir.graph import Encoding, Parameter, Tensor, uint32
from ..ir.types import INNER, DataType
from ..ir.values import Value
from .program import ProgramBuilder

REAL: Final = dtypes("float32")
INTEGERS: Final = ("int32", "int64")
NUMBERS: Final = dtypes("float32", *INTEGERS)
ANY: Final = dtypes("float32", *INTEGERS, "bool")

# -- building ----------------------------------------------------------------------------------------------------------


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape of some that PyTorch broadcasts."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def aligned(b: ProgramBuilder, *values: Value) -> tuple[list[Tensor], tuple[int, ...]]:
    """Tensors of values that broadcast, all in one order of axes, and this order.

    It is the order of the first computed one that has all axes and is not stored as the program has it.
    """
    rank = max(value.rank for value in values)
    orders = [value.order for value in values if value.rank == rank and value.tensor.data is None]
    order = next((item for item in orders if item != identity(rank)), identity(rank))
    return [_widened(b, value, order) for value in values], order


def _widened(b: ProgramBuilder, value: Value, order: tuple[int, ...]) -> Tensor:
    """A value's tensor with axes of size 1 in front, in an order of axes."""
    if value.rank == len(order):
        return b.stored(value, order)
    shape = (1,) * (len(order) - value.rank) + value.shape
    widened = b.reshaped(b.dense(value), shape)
    return b.stored(Value(widened, identity(len(order))), order)


def apply(
    b: ProgramBuilder,
    kind: str,
    tensors: Sequence[Tensor],
    datatype: DataType,
    encoding: Encoding | None = None,
    **parameters: Parameter,
) -> Tensor:
    """An operation on each element of tensors with as many axes, which broadcast, or of one with any other number.

    Neighbors of more than four axes that broadcast alike are one: the processor has few operations for five, and
    crashes at some of them.
    """
    shape = broadcast(*(item.shape for item in tensors))
    if len(shape) < 5:
        return b.emit(kind, tensors, shape, datatype, encoding, **parameters)
    runs = _runs([item.shape for item in tensors], shape)
    if len(runs) > 4:
        tensors = [_widest(b, item, shape) for item in tensors]
        runs = [list(range(len(shape)))]
    runs = [[]] * (4 - len(runs)) + runs
    merged = [
        b.reshaped(item, [math.prod(item.shape[axis] for axis in run) for run in runs])
        if item.rank == len(shape)
        else item
        for item in tensors
    ]
    made = b.emit(
        kind, merged, [math.prod(shape[axis] for axis in run) for run in runs], datatype, encoding, **parameters
    )
    return b.reshaped(made, shape)


def _widest(b: ProgramBuilder, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor broadcast to a shape; one element stays one."""
    if tensor.shape == tuple(shape) or math.prod(tensor.shape) == 1:
        return b.reshaped(tensor, (1,) * len(shape)) if tensor.shape != tuple(shape) else tensor
    return tile(b, tensor, [size // own for size, own in zip(shape, tensor.shape, strict=True)])


def tile(b: ProgramBuilder, tensor: Tensor, counts: Sequence[int]) -> Tensor:
    """A tensor repeated so many times along each axis, by one operation.

    Where one column becomes many, a product or difference with another such column that reads it is computed in
    the first column alone: the library takes the repetition for what the operation does anyway. An axis further
    in front it repeats.
    """
    shape = [size * count for size, count in zip(tensor.shape, counts, strict=True)]
    if tensor.shape[-1] == 1 and set(counts[:-1]) <= {1}:
        column = b.reshaped(tensor, (math.prod(tensor.shape), 1, 1))
        return b.reshaped(_tile(b, column, (1, counts[-1], 1)), shape)
    return _tile(b, tensor, counts)


def _tile(b: ProgramBuilder, tensor: Tensor, counts: Sequence[int]) -> Tensor:
    shape = [size * count for size, count in zip(tensor.shape, counts, strict=True)]
    return b.emit("Tile", [tensor], shape, tensor.datatype, tensor.encoding, multiples=uint32(*counts))


def _runs(shapes: Sequence[Sequence[int]], result: Sequence[int]) -> list[list[int]]:
    """Neighboring axes of tensors that broadcast alike."""
    runs: list[list[int]] = []
    found: list[bool] = []
    for axis, size in enumerate(result):
        same = [shape[axis] == size for shape in shapes if len(shape) == len(result)]
        if runs and (same == found or size == 1):
            runs[-1].append(axis)
        else:
            runs.append([axis])
            found = same
    return runs


def operation(
    b: ProgramBuilder,
    kind: str,
    values: Sequence[Value],
    datatype: DataType,
    encoding: Encoding | None = None,
    **parameters: Parameter,
) -> Value:
    """An elementwise operation on values that broadcast."""
    tensors, order = aligned(b, *values)
    return Value(apply(b, kind, tensors, datatype, encoding, **parameters), order)


def binary(b: ProgramBuilder, kind: str, left: Value | float, right: Value | float) -> Value:
    """An operation on two floats or integers, of which one may be a number; the result has their type."""
    like = next(item for item in (left, right) if isinstance(item, Value)).tensor
    values = [item if isinstance(item, Value) else Value(b.scalar(item, like), ()) for item in (left, right)]
    return operation(b, kind, values, like.datatype)


def unary(b: ProgramBuilder, kind: str, x: Value, **parameters: Parameter) -> Value:
    """A function of each float or integer."""
    return Value(apply(b, kind, [x.tensor], x.tensor.datatype, x.tensor.encoding, **parameters), x.order)


def as_numbers(b: ProgramBuilder, value: Value) -> Value:
    """Booleans as integers: the processor computes with them, and moves them, no other way."""
    if value.tensor.datatype is not DataType.BOOL:
        return value
    if value.tensor.data is not None:
        return Value(b.constant(value.tensor.data.astype(np.int32)), value.order)
    return Value(b.cast(value.tensor, DataType.INT32), value.order)


def as_type(b: ProgramBuilder, value: Value, like: Value) -> Value:
    """Integers that `as_numbers` made as what they were."""
    return Value(b.cast(value.tensor, DataType.BOOL), value.order) if like.tensor.datatype is DataType.BOOL else value


def add(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """Their sum."""
    return binary(b, "ElementWiseAdd", left, right)


def sub(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """Their difference."""
    return binary(b, "ElementWiseSubtract", left, right)


def mul(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """Their product."""
    return binary(b, "ElementWiseMultiply", left, right)


def div(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """Their quotient."""
    return binary(b, "ElementWiseDivide", left, right)


def larger(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """The larger one."""
    return binary(b, "ElementWiseMaximum", left, right)


def lesser(b: ProgramBuilder, left: Value | float, right: Value | float) -> Value:
    """The lesser one."""
    return binary(b, "ElementWiseMinimum", left, right)


def compared(b: ProgramBuilder, kind: str, left: Value, right: Value | float) -> Value:
    """Booleans of a comparison: "Less", "Equal"."""
    other = right if isinstance(right, Value) else Value(b.scalar(right, left.tensor), ())
    return operation(b, f"ElementWise{kind}", [left, other], DataType.BOOL)


def where(b: ProgramBuilder, condition: Value, left: Value | float, right: Value | float) -> Value:
    """One where a condition holds, else the other."""
    like = next(item for item in (left, right) if isinstance(item, Value)).tensor
    values = [item if isinstance(item, Value) else Value(b.scalar(item, like), ()) for item in (left, right)]
    return operation(b, "ElementWiseSelect", [condition, *values], like.datatype, like.encoding)


def truncated(b: ProgramBuilder, x: Value) -> Value:
    """Numbers without their fractions."""
    up, down = (unary(b, f"ElementWise{kind}", x) for kind in ("Ceil", "Floor"))
    return where(b, compared(b, "Less", x, 0), up, down)


def operand(b: ProgramBuilder, call: Call, name: str = "self") -> Value:
    """An operand as the call needs its numbers, in floats if the result is: PyTorch takes integers, too."""
    value = b.activation(call[name])
    wanted = INNER[call.results[0].dtype]
    if wanted.is_float and not value.is_fixed:
        return Value(b.cast(value.tensor, wanted), value.order)
    return value


def as_result(b: ProgramBuilder, call: Call, value: Value) -> Value:
    """Floats as the integers that the call makes, if it does."""
    datatype, encoding = b.result_type(call)
    return value if encoding is None else b.quantized(value, datatype, encoding)


def term(b: ProgramBuilder, call: Call, name: str, like: Value) -> Value:
    """An operand or number as a value beside another one."""
    found = call[name]
    if isinstance(found, Operand):
        return operand(b, call, name)
    return Value(b.scalar(found, like.tensor), ())


def function(kind: str, **parameters: Parameter) -> Callable[[ProgramBuilder, Call], Value]:
    """The lowering of a function of each element, which may be computed on integers."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = operand(b, call)
        datatype, encoding = b.result_type(call)
        return Value(apply(b, kind, [x.tensor], datatype, encoding, **parameters), x.order)

    return lower


# -- constraints -------------------------------------------------------------------------------------------------------


def overwritten_is_read(call: Call) -> str | None:
    """A tensor that is overwritten as a whole has another reader: the library fails where all results are constant."""
    overwritten = call["self"]
    if "_scatter" in call.operator and math.prod(call["src"].shape) < math.prod(overwritten.shape):
        return None
    node = call.node.all_input_nodes[0]
    return None if len(node.users) > 1 else f"{overwritten.name} is overwritten as a whole, and nothing else reads it"


def known(*names: str) -> Constraint:
    """The named tensors, where they are given, are constant, or dequantized from constants."""

    def check(call: Call) -> str | None:
        for name in names:
            found = call[name]
            if isinstance(found, Operand) and not found.is_known:
                return f"its parameter {name} is computed: QNN takes a constant"
        return None

    check.__doc__ = f"Constant: {', '.join(names)}."
    return check
