"""Building blocks and constraints that several families share, and the dialect of the compositions."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import indices_of
from delegatekit_toolkit.composed import Dialect, Number, Primitive
from delegatekit_toolkit.composed import number as number_
from delegatekit_toolkit.composed.rows import arguments, lowering
from delegatekit_toolkit.constraints import dtypes, types_of
from delegatekit_toolkit.expressions import broadcast

from ..ir.builder import ModelBuilder, Value
from ..ir.sizes import Size, size_of, sizes_of
from ..ir.types import DIGITS

#: A value, or a number that becomes a constant of the other operand's type.
Term: TypeAlias = "Value | float"

FLOATS: Final = ("float32", "float16", "bfloat16")
INTEGERS: Final = ("int32", "int64")


def lost_nan(call: Call) -> str:
    """The special values of what compares or approximates: the processor's maximum of a number and NaN is either."""
    real = any(item.dtype.is_floating_point for item in call.tensors)
    return "NaN may become a number, and so may infinities in sums of exponentials" if real else ""


# -- building ----------------------------------------------------------------------------------------------------------


def binary(b: ModelBuilder, kind: str, left: Term, right: Term) -> Value:
    """An operation on two operands, which broadcast."""
    dtype = next(item.dtype for item in (left, right) if isinstance(item, Value))
    x, y = (item if isinstance(item, Value) else b.number(item, dtype) for item in (left, right))
    return b.declare(b.op(kind, x, y), broadcast(x.shape, y.shape))


def unary(b: ModelBuilder, kind: str, x: Value, **attributes: Any) -> Value:
    """A function of each element."""
    return b.declare(b.op(kind, x, **attributes), x.shape)


def where(b: ModelBuilder, condition: Value, left: Term, right: Term) -> Value:
    """One of two. OpenVINO may choose among integers in float32: their difference, or none of it, is exact."""
    dtype = next(item.dtype for item in (left, right) if isinstance(item, Value))
    x, y = (item if isinstance(item, Value) else b.number(item, dtype) for item in (left, right))
    if not dtype.is_floating_point and dtype is not torch.bool:
        more = binary(b, "multiply", binary(b, "subtract", x, y), b.cast(condition, dtype))
        return binary(b, "add", y, more)
    return b.declare(b.op("select", condition, x, y), broadcast(condition.shape, x.shape, y.shape))


def transposed(b: ModelBuilder, x: Value, order: Sequence[int]) -> Value:
    """The axes in another order."""
    if list(order) == list(range(x.rank)):
        return x
    return b.declare(b.op("transpose", x, b.integers(order)), [x.shape[axis] for axis in order])


def expanded(b: ModelBuilder, x: Value, shape: Sequence[Any]) -> Value:
    """Broadcast to a shape."""
    wanted = sizes_of(shape)
    if x.shape == wanted and None not in wanted:
        return x
    return b.declare(b.op("broadcast", x, b.sizes(wanted)), wanted)


def sliced(b: ModelBuilder, x: Value, axis: int, start: Any, end: Any, step: int = 1) -> Value:
    """The part of a value from `start` up to before `end` along an axis; places count from the front."""
    first, last = size_of(start), size_of(end)
    if (first, last, step) == (0, x.shape[axis], 1):
        return x
    shape = list(x.shape)
    if isinstance(first, int) and isinstance(last, int):
        shape[axis] = max(-(-(last - first) // step), 0)
    elif step == 1 and first is not None and last is not None:
        shape[axis] = size_of(last - first)
    else:
        shape[axis] = None
    made = b.op("slice", x, b.sizes([first]), b.sizes([last]), b.integers([step]), b.integers([axis]))
    return b.declare(made, shape)


def concatenated(b: ModelBuilder, parts: Sequence[Value], axis: int) -> Value:
    """Values one after the other along an axis."""
    if len(parts) == 1:
        return parts[0]
    sizes = [part.shape[axis] for part in parts if part.shape[axis] is not None]
    shape = list(parts[0].shape)
    shape[axis] = None if len(sizes) < len(parts) else size_of(functools.reduce(operator.add, sizes))
    return b.declare(b.op("concat", list(parts), axis=axis), shape)


def reduced(b: ModelBuilder, kind: str, x: Value, axes: Iterable[int], *, keep: bool = True) -> Value:
    """A reduction along axes, which stay with size 1 if `keep` says so."""
    along = sorted(axes)
    if not along:
        return x
    shape = [1 if axis in along else size for axis, size in enumerate(x.shape) if keep or axis not in along]
    return b.declare(b.op(f"reduce_{kind}", x, b.integers(along), keep_dims=keep), shape)


def inserted(b: ModelBuilder, x: Value, axis: int) -> Value:
    """A new axis of size 1."""
    return b.declare(b.op("unsqueeze", x, b.integers([axis])), [*x.shape[:axis], 1, *x.shape[axis:]])


def dropped(b: ModelBuilder, x: Value, axes: Iterable[int]) -> Value:
    """Without some axes of size 1."""
    gone = sorted(axes)
    if not gone:
        return x
    shape = [size for axis, size in enumerate(x.shape) if axis not in gone]
    return b.declare(b.op("squeeze", x, b.integers(gone)), shape)


def in_order(b: ModelBuilder, x: Value, axis: int, count: int, *, ascending: bool) -> tuple[Value, Value]:
    """The least or largest elements along an axis in order, and their places."""
    values, places = b.ops(
        "topk",
        x,
        b.scalar(count),
        axis=axis,
        mode="min" if ascending else "max",
        sort="value",
        index_element_type="i64",
        stable=True,
    )
    shape = [count if at == axis else size for at, size in enumerate(x.shape)]
    return b.declare(values, shape), b.declare(places, shape)


def clamp(b: ModelBuilder, x: Value, low: float | None, high: float | None) -> Value:
    """x between two numbers; where the first is the larger one, everything is the second, as in PyTorch."""
    # Infinite bounds hold for all numbers; as constants they become the largest number.
    low = None if low == -math.inf else low
    high = None if high == math.inf else high
    finite = all(bound is not None and math.isfinite(bound) for bound in (low, high))
    if finite and x.is_float and low is not None and high is not None and low < high:
        return unary(b, "clamp", x, min_value=float(low), max_value=float(high))
    if low is not None:
        x = binary(b, "maximum", x, low)
    return x if high is None else binary(b, "minimum", x, high)


def tensor(b: ModelBuilder, call: Call, name: str = "self") -> Value:
    """The value of an operand."""
    return b.value(call[name])


def floating(b: ModelBuilder, call: Call, name: str = "self") -> Value:
    """An operand in the result's type."""
    return b.cast(b.value(call[name]), b.result_type(call))


def own(b: ModelBuilder, call: Call, value: Value, name: str = "self") -> Value:
    """A result is a value of its own: one that moves nothing is a reshape to the same sizes."""
    return copied(b, value) if value.output == tensor(b, call, name).output else value


def copied(b: ModelBuilder, value: Value) -> Value:
    """The same numbers as a value of its own."""
    return b.declare(b.op("reshape", value, b.sizes(value.shape), special_zero=False), value.shape)


# -- the dialect of the compositions -----------------------------------------------------------------------------------


def _one(kind: str) -> Primitive[Value]:
    return lambda b, x: unary(b, kind, x)


def _two(kind: str) -> Primitive[Value]:
    return lambda b, left, right: binary(b, kind, left, right)


def _reduced(kind: str) -> Primitive[Value]:
    make = extreme if kind in ("max", "min") else reduced
    return lambda b, x, axes, keep: make(b, kind, x, axes, keep=keep)


def _places(b: ModelBuilder, x: Value, axis: int) -> Value:
    size = x.shape[axis]
    assert isinstance(size, int)
    order = torch.arange(size).reshape([-1 if at == axis else 1 for at in range(x.rank)])
    return expanded(b, b.constant(order), x.shape)


def _smooth_relu(b: ModelBuilder, x: Value) -> Value:
    """max(x, 0) + ln(1 + e^-|x|), whose logarithm keeps its digits far below 0."""
    tail = _short_log1p(number_.exp(-abs(DIALECT.number(b, x)))).value
    return binary(b, "add", binary(b, "maximum", x, 0), tail)


def _short_log1p(x: Number[Value]) -> Number[Value]:
    """ln(1 + x) from -1/2 to 1: 2 artanh(s) with s = x / (2 + x), whose series at a third is exact after 9 terms."""
    s = x / (x + 2)
    return s * number_.polynomial(s * s, [2 / power for power in range(1, 19, 2)])


def _divide(b: ModelBuilder, left: Term, right: Term) -> Value:
    """A quotient. OpenVINO multiplies by the inverse of a constant, which has too few digits in float16."""
    wide = [
        unary(b, "convert", item, destination_type="f32")
        if isinstance(item, Value) and item.dtype is torch.float16
        else item
        for item in (left, right)
    ]
    made = binary(b, "divide", *wide)
    return made if wide == [left, right] else unary(b, "convert", made, destination_type="f16")


def _floor_divide(b: ModelBuilder, left: Value, right: Term) -> Value:
    """The largest integer that is at most the quotient.

    OpenVINO divides integers in float32, and cuts the fraction off. What it leaves after two divisions is less than
    the divisor, or as much, and of any sign; sums, differences, products and signs of integers are exact.
    """
    if left.is_float:
        return unary(b, "floor", binary(b, "divide", left, right))
    divisor = right if isinstance(right, Value) else b.number(right, left.dtype)
    direction = unary(b, "sign", divisor)
    found, rest = None, left
    for _ in range(2):
        more = binary(b, "divide", rest, divisor)
        rest = binary(b, "subtract", rest, binary(b, "multiply", more, divisor))
        found = more if found is None else binary(b, "add", found, more)
    assert found is not None
    below = binary(b, "less", binary(b, "multiply", unary(b, "sign", rest), direction), 0)
    rest = where(b, below, binary(b, "add", rest, divisor), rest)
    found = binary(b, "subtract", found, b.cast(below, left.dtype))
    # (Of a rest of 0, the difference from the least divisor is beyond 32 bits.)
    left_over = unary(b, "sign", binary(b, "subtract", rest, divisor))
    more = binary(b, "greater_equal", binary(b, "multiply", left_over, direction), 0)
    above = binary(b, "logical_and", more, binary(b, "not_equal", rest, 0))
    return binary(b, "add", found, b.cast(above, left.dtype))


def _relu(b: ModelBuilder, x: Value) -> Value:
    return unary(b, "relu", x) if x.is_float else binary(b, "maximum", x, 0)


#: Integers of a smaller size are the same in float32.
_EXACT: Final = 1 << 24


#: Comparisons that are true of NaN on processors with AVX-512 -> the same ones with the sides exchanged.
_EXCHANGED: Final = {"greater": "less", "greater_equal": "less_equal"}


def _compared(kind: str) -> Primitive[Value]:
    """A comparison. OpenVINO compares integers in float32: larger ones by a difference from their maximum, and 0."""

    def plain(b: ModelBuilder, left: Value, right: Term) -> Value:
        return binary(b, _EXCHANGED[kind], right, left) if kind in _EXCHANGED else binary(b, kind, left, right)

    def compare(b: ModelBuilder, left: Value, right: Term) -> Value:
        if not isinstance(right, Value):
            if left.dtype is torch.bool:
                left = b.cast(left, torch.float32 if isinstance(right, float) else torch.int32)
            if left.is_float or abs(right) < _EXACT:
                return plain(b, left, right)
        if left.is_float or left.dtype is torch.bool:
            return plain(b, left, right)
        if kind in ("equal", "not_equal"):
            return binary(b, kind, binary(b, "subtract", left, right), 0)
        if kind in ("less", "greater_equal"):  # less: the maximum is another number than the left one
            more = binary(b, "subtract", binary(b, "maximum", left, right), left)
            return binary(b, "not_equal" if kind == "less" else "equal", more, 0)
        less = binary(b, "subtract", left, binary(b, "minimum", left, right))
        return binary(b, "not_equal" if kind == "greater" else "equal", less, 0)

    return compare


def extreme(b: ModelBuilder, kind: str, x: Value, axes: Iterable[int], *, keep: bool = True) -> Value:
    """The largest ("max") or least number along axes: of integers, which OpenVINO reduces in float32, in two halves."""
    along = tuple(axes)
    if x.is_float or x.dtype is torch.bool or not along:
        return reduced(b, kind, x, along, keep=keep)
    bits = b.number(16, x.dtype)
    high = binary(b, "bitwise_right_shift", x, bits)
    low = binary(b, "subtract", x, binary(b, "multiply", high, 1 << 16))
    most = reduced(b, kind, high, along)
    rest = where(b, binary(b, "equal", high, most), low, -1 if kind == "max" else 1 << 16)
    made = binary(b, "add", binary(b, "multiply", most, 1 << 16), reduced(b, kind, rest, along))
    return made if keep else dropped(b, made, along)


def _exp(b: ModelBuilder, x: Value) -> Value:
    """e^x as a product: OpenVINO's is infinite from 88.4 on, float32's at 88.7."""
    below, above = (unary(b, "exp", part) for part in (binary(b, "minimum", x, 88), _relu(b, sub(b, x, 88))))
    return mul(b, below, above)


def _silu(b: ModelBuilder, x: Value) -> Value:
    return b.declare(b.op("swish", x, b.number(1, x.dtype)), x.shape)


def _log1p(b: ModelBuilder, x: Value) -> Value:
    """OpenVINO's logarithm near 1 is exact to some millionths only, of which nothing may be left here."""
    given = DIALECT.number(b, x)
    near = (given > -0.5) & (given < 1)
    return number_.where(near, _short_log1p(given), number_.log(given + 1)).value


def _log(b: ModelBuilder, x: Value) -> Value:
    """As above: the difference from 1 is exact between its half and its double."""
    given = DIALECT.number(b, x)
    near = (given > 0.5) & (given < 2)
    return number_.where(near, _short_log1p(given - 1), DIALECT.number(b, unary(b, "log", x))).value


#: OpenVINO's operations by the names of the compositions.
DIALECT: Final[Dialect[Value]] = Dialect(
    {
        **{
            name: _two(kind)
            for name, kind in {
                "add": "add",
                "sub": "subtract",
                "mul": "multiply",
                "pow": "power",
                "and": "logical_and",
                "or": "logical_or",
                "xor": "logical_xor",
                **{name: name for name in ("bitwise_and", "bitwise_or", "bitwise_xor")},
                "minimum": "minimum",
                "maximum": "maximum",
            }.items()
        },
        **{
            name: _compared(kind)
            for name, kind in {
                "eq": "equal",
                "ne": "not_equal",
                "lt": "less",
                "le": "less_equal",
                "gt": "greater",
                "ge": "greater_equal",
            }.items()
        },
        **{
            name: _one(kind)
            for name, kind in {
                **{name: name for name in ("sign", "floor", "sqrt", "sin", "cos", "tan")},
                **{name: name for name in ("acos", "asin", "atan", "sinh", "cosh", "tanh", "sigmoid")},
                "ceil": "ceiling",
                "neg": "negative",
                "not": "logical_not",
                "hardsigmoid": "hsigmoid",
                "hardswish": "hswish",
                "isnan": "is_nan",
                "isinf": "is_inf",
            }.items()
        },
        "round": lambda b, x: unary(b, "round", x, mode="half_to_even"),
        "truth": lambda b, x: b.cast(x, torch.bool),
        "smooth_relu": _smooth_relu,
        "silu": _silu,
        "abs": lambda b, x: b.absolute(x),
        "relu": _relu,
        "div": _divide,
        "floor_divide": _floor_divide,
        "exp": _exp,
        "log": _log,
        "log1p": _log1p,
        "clamp": clamp,
        "where": where,
        "slice": sliced,
        "concat": concatenated,
        "insert": inserted,
        "drop": dropped,
        "places": _places,
        "integers": lambda b, x: b.cast(x, torch.int32),
        **{
            f"reduce_{name}": _reduced(kind)
            for name, kind in {"sum": "sum", "mean": "mean", "max": "max", "min": "min", "l2_norm": "l2"}.items()
        },
    },
    lambda x: DIGITS.get(x.dtype, 0),
)

#: Of two values, of which one may be a Python number.
add, sub, mul, div = (DIALECT.primitives[name] for name in ("add", "sub", "mul", "div"))


def _size(b: ModelBuilder, size: Any, call: Call) -> Value:
    wanted = b.result_type(call)
    return b.size(size, wanted if wanted.is_floating_point else tensor(b, call).dtype)


#: An argument for a composition.
number: Final = arguments(DIALECT, lambda b, value, call: b.cast(value, b.result_type(call)), _size)
#: Makes a lowering function of a composition: its operands, and arguments that it takes as they are.
composed: Final = functools.partial(lowering, argument=number, copied=copied)

# -- constraints -------------------------------------------------------------------------------------------------------

REAL: Final = dtypes(*FLOATS)
NUMBERS: Final = dtypes(*FLOATS, *INTEGERS)
ANY: Final = dtypes(*FLOATS, *INTEGERS, "bool")
#: (OpenVINO joins the bits of long tensors of 8 bits and a number wrongly.)
BITS: Final = dtypes(*INTEGERS, "bool")
#: What is put in order.
SORTED: Final = types_of("self", *FLOATS, *INTEGERS)
#: What only moves, in small integers, too.
MOVED: Final = dtypes(*FLOATS, *INTEGERS, "int8", "uint8", "bool")


def from_front(b: ModelBuilder, operand: Operand, size: Size) -> Value:
    """Indices counted from the front, none beyond the end."""
    known = operand.constant
    if known is not None and isinstance(size, int):
        return b.constant(torch.where(known < 0, known + size, known))
    indices = b.value(operand)
    more = size if isinstance(size, int) else b.size(size, indices.dtype)
    return inside(b, where(b, binary(b, "greater_equal", indices, 0), indices, add(b, indices, more)), operand, size)


def inside(b: ModelBuilder, indices: Value, operand: Operand, size: Size) -> Value:
    """Indices of which those beyond the end are the last one: OpenVINO checks none, and writes to any memory."""
    known = operand.constant
    if known is not None and isinstance(size, int) and bool(((known >= 0) & (known < size)).all()):
        return indices
    last = size - 1 if isinstance(size, int) else binary(b, "subtract", b.size(size, indices.dtype), 1)
    return binary(b, "minimum", binary(b, "maximum", indices, 0), last)


def integer_indices(call: Call) -> str | None:
    """The indices are integers."""
    return "an index is a mask" if any(item.dtype_name == "bool" for item in indices_of(call).values()) else None


def places_of(b: ModelBuilder, x: Value, found: dict[int, Operand]) -> tuple[Value, Sequence[int], tuple[Size, ...]]:
    """Places along several axes as rows of a tensor, x's axes with these in front, and the shape of the indices."""
    order = [*found, *(axis for axis in range(x.rank) if axis not in found)]
    values = [b.cast(from_front(b, index, x.shape[axis]), torch.int64) for axis, index in found.items()]
    shape = broadcast(*(value.shape for value in values))
    parts = [inserted(b, expanded(b, value, shape), len(shape)) for value in values]
    return b.declare(b.op("concat", parts, axis=len(shape)), (*shape, len(parts))), order, shape
