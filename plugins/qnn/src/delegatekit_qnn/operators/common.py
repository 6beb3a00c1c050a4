"""What lowering functions of several families share: order of axes of several operands, arithmetic, constraints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Constraint

from ..ir.graph import Encoding, Parameter, Tensor
from ..ir.types import INNER, DataType
from ..ir.values import Value, reordered
from .program import Lower, ProgramBuilder

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
    shape = reordered(broadcast(*(value.shape for value in values)), order) if order else ()
    return Value(b.emit(kind, tensors, shape, datatype, encoding, **parameters), order)


def binary(b: ProgramBuilder, kind: str, left: Value | float, right: Value | float) -> Value:
    """An operation on two floats or integers, of which one may be a number; the result has their type."""
    like = next(item for item in (left, right) if isinstance(item, Value)).tensor
    values = [item if isinstance(item, Value) else Value(b.scalar(item, like), ()) for item in (left, right)]
    return operation(b, kind, values, like.datatype)


def unary(b: ProgramBuilder, kind: str, x: Value, **parameters: Parameter) -> Value:
    """A function of each float or integer."""
    return Value(b.like(kind, x.tensor, **parameters), x.order)


def operand(b: ProgramBuilder, call: Call, name: str = "self") -> Value:
    """An operand as the call needs its numbers, in floats if the result is: PyTorch takes integers, too."""
    value = b.activation(call[name])
    wanted = INNER[call.results[0].dtype]
    if wanted.is_float and not value.is_fixed:
        return Value(b.cast(value.tensor, wanted), value.order)
    return value


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
        return Value(b.emit(kind, [x.tensor], x.tensor.shape, datatype, encoding, **parameters), x.order)

    return lower


def composed(make: Callable[[ProgramBuilder, Value], Value]) -> Lower:
    """The lowering of a function of the operand `self` that is composed of others, in floats."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        return make(b, operand(b, call))

    return lower


# -- constraints -------------------------------------------------------------------------------------------------------


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


def types_of(name: str, *allowed: str) -> Constraint:
    """The named operand has one of these types."""

    def check(call: Call) -> str | None:
        found = call[name]
        if not isinstance(found, Operand) or found.dtype_name in allowed:
            return None
        return f"{name} is {found.dtype_name}: {' or '.join(allowed)} is taken"

    check.__doc__ = f"{name} is {' or '.join(allowed)}."
    return check


def has_axes(name: str) -> Constraint:
    """The named tensor has axes."""

    def check(call: Call) -> str | None:
        return None if call[name].rank else f"{name} has no axes"

    check.__doc__ = f"{name} has axes."
    return check
