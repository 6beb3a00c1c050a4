"""Building blocks that several families share, and the dialect of the compositions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import Dialect, Number, Primitive
from delegatekit_toolkit.composed import number as number_
from delegatekit_toolkit.composed.functions import small_tanh
from delegatekit_toolkit.composed.rows import lowering
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.tosa import (
    Abs,
    Add,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Cast,
    Ceil,
    Clamp,
    Cos,
    DType,
    Equal,
    Erf,
    Exp,
    Floor,
    Greater,
    GreaterEqual,
    Intdiv,
    Log,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Maximum,
    Minimum,
    Negate,
    Operator,
    Pow,
    Reciprocal,
    ReduceMax,
    ReduceMin,
    ReduceSum,
    Rsqrt,
    Sigmoid,
    Sin,
    Sub,
    Tanh,
)

from ..ir.builder import Term, Value, VgfBuilder
from ..ir.types import DIGITS, DTYPES, FLOATS

#: From here on every float32, and every float16, is a whole number.
_WHOLE: Final = {DType.FP32: 2.0**23, DType.FP16: 2.0**10}

_LARGEST: Final = {DType.FP32: float(np.finfo(np.float32).max), DType.FP16: float(np.finfo(np.float16).max)}

#: Exponents whose powers are products of float32, which have more digits than POW.
_PRODUCTS: Final = range(1, 10)

#: Floating-point types.
REALS: Final = ("float32", "float16")
#: (Constants of int64 become int32; others are refused.)
_WIDE: Final = ("int32", "int64")
REAL: Final = dtypes(*REALS)
NUMBERS: Final = dtypes(*REALS, *_WIDE)
ANY: Final = dtypes(*REALS, *_WIDE, "bool")
BITS: Final = dtypes(*_WIDE, "int8", "int16", "bool")
#: What only moves, in small integers, too.
MOVED: Final = dtypes(*REALS, *_WIDE, "int8", "int16", "bool")
#: Operands whose quotients and powers leave the range of normal numbers on the way.
EXTREMES: Final = "quotients are products with a reciprocal, which is 0 or infinite for the largest and least numbers"

# -- building ----------------------------------------------------------------------------------------------------------


def tensor(b: VgfBuilder, call: Call, name: str = "self") -> Value:
    """The value of an operand."""
    return b.value(call[name])


def result_type(call: Call) -> DType:
    """The type of a call's first result."""
    return DTYPES[call.results[0].dtype]


def reduced(b: VgfBuilder, make: Callable[[int], Operator], x: Value, axes: Iterable[int], *, keep: bool) -> Value:
    """A reduction along axes, one after the other; they stay with size 1 if `keep` says so.

    Sums of float16 are float32 on the way, as PyTorch's are.
    """
    gone, dtype = sorted(axes), x.tensor.dtype
    if dtype == DType.FP16 and make is ReduceSum:
        return b.cast(reduced(b, make, b.cast(x, DType.FP32), gone, keep=keep), dtype)
    for axis in gone:
        place, shape = x.stored_axis(axis), list(x.tensor.shape)
        shape[place] = 1
        x = Value(b.emit(make(place), (x.tensor,), shape, dtype), x.order)
    return x if keep else dropped(b, x, gone)


def dropped(b: VgfBuilder, x: Value, axes: Iterable[int]) -> Value:
    """Without some axes of size 1."""
    gone = set(axes)
    return b.shaped(x, [size for axis, size in enumerate(x.shape) if axis not in gone])


def inserted(b: VgfBuilder, x: Value, axis: int) -> Value:
    """A new axis of size 1."""
    return b.shaped(x, [*x.shape[:axis], 1, *x.shape[axis:]])


def clamp(b: VgfBuilder, x: Value, low: float | None, high: float | None) -> Value:
    """x between two numbers; where the first is the larger one, everything is the second, as in PyTorch."""
    dtype = x.tensor.dtype
    if dtype in FLOATS:
        first, last = (-math.inf if low is None else low), (math.inf if high is None else high)
        # (The converter takes the least bound for none.)
        if last > -math.inf and first < math.inf:
            return b.apply(Clamp(float(min(first, last)), float(last)), x)
    if low is not None:
        x = b.apply(Maximum(), x, b.term(low, x))
    return x if high is None else b.apply(Minimum(), x, b.term(high, x))


def softmax(b: VgfBuilder, x: Value, axis: int) -> Value:
    """Exponentials over their sum along an axis."""
    _, powers, total = exponentials(b, x, axis)
    return b.product(powers, b.apply(Reciprocal(), total))


def exponentials(b: VgfBuilder, x: Value, axis: int) -> tuple[Value, Value, Value]:
    """Differences from the largest along an axis, their exponentials, and the sum of these."""
    moved = b.apply(Sub(), x, reduced(b, ReduceMax, x, [axis], keep=True))
    powers = b.apply(Exp(), moved)
    return moved, powers, reduced(b, ReduceSum, powers, [axis], keep=True)


# -- the dialect of the compositions -----------------------------------------------------------------------------------


def _pair(b: VgfBuilder, left: Term, right: Term) -> tuple[Value, Value]:
    like = left if isinstance(left, Value) else right
    assert isinstance(like, Value)
    return b.term(left, like), b.term(right, like)


def _two(operator: Operator) -> Primitive[Value]:
    return lambda b, left, right: b.apply(operator, *_pair(b, left, right))


def _one(operator: Operator) -> Primitive[Value]:
    return lambda b, x: b.apply(operator, x)


def _comparison(operator: Operator, *, swap: bool = False) -> Primitive[Value]:
    """A comparison, with its operands in the other order if `swap` says so; booleans are compared as integers."""

    def make(b: VgfBuilder, left: Term, right: Term) -> Value:
        given = (
            b.cast(item, DType.INT32) if isinstance(item, Value) and item.tensor.dtype == DType.BOOL else item
            for item in (left, right)
        )
        items = _pair(b, *given)
        return b.apply(operator, *(reversed(items) if swap else items), dtype=DType.BOOL)

    return make


def _negative(b: VgfBuilder, x: Value) -> Value:
    zero = b.graph.constant([0], x.tensor.dtype)
    return b.apply(Negate(), x, more=(zero, zero))


def _divided(b: VgfBuilder, left: Term, right: Term) -> Value:
    first, second = _pair(b, left, right)
    if not isinstance(right, Value) and right and math.frexp(right)[0] in (0.5, -0.5):
        return b.product(first, b.term(1 / right, first))
    return b.product(first, b.apply(Reciprocal(), second))


def _floor_divide(b: VgfBuilder, left: Term, right: Term) -> Value:
    """The largest integer that is at most the quotient: INTDIV rounds towards 0."""
    first, second = _pair(b, left, right)
    if first.tensor.dtype in FLOATS:
        return b.apply(Floor(), _divided(b, first, second))
    quotient = b.apply(Intdiv(), first, second)
    rest = b.apply(Sub(), first, b.product(quotient, second))
    zero = b.term(0, rest)
    other_sign = b.apply(LogicalXor(), b.less(rest, zero), b.less(second, b.term(0, second)), dtype=DType.BOOL)
    exact = b.apply(Equal(), rest, zero, dtype=DType.BOOL)
    less = b.apply(LogicalAnd(), b.opposite(exact), other_sign, dtype=DType.BOOL)
    return b.apply(Sub(), quotient, b.cast(less, DType.INT32))


def _sign(b: VgfBuilder, x: Value) -> Value:
    zero, one, minus = (b.term(number, x) for number in (0, 1, -1))
    return b.choice(b.less(x, zero), minus, b.choice(b.less(zero, x), one, zero))


def _round(b: VgfBuilder, x: Value) -> Value:
    """CAST rounds to the nearest even number."""
    dtype = x.tensor.dtype
    if dtype not in FLOATS:
        return x
    whole = b.apply(Cast(), b.apply(Cast(), x, dtype=DType.INT32), dtype=dtype)
    small = b.less(b.apply(Abs(), x), b.term(_WHOLE[dtype], x))
    return b.choice(small, whole, x)


def _root(b: VgfBuilder, x: Value) -> Value:
    return b.apply(Reciprocal(), b.apply(Rsqrt(), x))


def _tanh(b: VgfBuilder, x: Value) -> Value:
    """TANH has some 24 bits of 1 only, of which nothing may be left near 0."""
    given, far = DIALECT.number(b, x), DIALECT.number(b, b.apply(Tanh(), x))
    near = small_tanh(number_.clamp(given, -0.5, 0.5))
    return number_.where(abs(given) < 0.5, near, far).value


def _exp2(b: VgfBuilder, x: Value) -> Value:
    """2^x by the exponential of a product, which has too few digits in float16."""
    product = b.product(*_pair(b, b.cast(x, DType.FP32), math.log(2)))
    return b.cast(b.apply(Exp(), product), x.tensor.dtype)


def _where(b: VgfBuilder, condition: Value, left: Term, right: Term) -> Value:
    return b.choice(condition, *_pair(b, left, right))


def _logical(operator: Operator) -> Primitive[Value]:
    return lambda b, left, right: b.apply(operator, left, right, dtype=DType.BOOL)


def mean(b: VgfBuilder, x: Value, axes: Iterable[int], keep: bool) -> Value:
    """The mean along axes, which stay with size 1 if `keep` says so."""
    gone = list(axes)
    count = math.prod(x.shape[axis] for axis in gone)
    made = reduced(b, ReduceSum, b.cast(x, DType.FP32), gone, keep=keep)
    return b.cast(b.product(made, b.term(1 / count, made)), x.tensor.dtype)


def _reduction(make: Callable[[int], Operator]) -> Primitive[Value]:
    return lambda b, x, axes, keep: reduced(b, make, x, axes, keep=keep)


def _places(b: VgfBuilder, x: Value, axis: int) -> Value:
    shape = [size if at == axis else 1 for at, size in enumerate(x.shape)]
    places = np.broadcast_to(np.arange(x.shape[axis]).reshape(shape), x.shape)
    return b.array(places, DType.INT32)


def _power(b: VgfBuilder, left: Term, right: Term) -> Value:
    """POW of finite sizes above 0: TOSA defines no powers of 0, infinity and NaN, and of negative numbers only some."""
    base, exponent = _pair(b, left, right)
    dtype = base.tensor.dtype
    if dtype == DType.FP32 and not isinstance(right, Value) and abs(right) in _PRODUCTS:
        return _repeated(b, base, int(right))
    x, y = DIALECT.number(b, base), DIALECT.number(b, exponent)
    size = abs(x)
    usual, real = (size > 0) & (size < math.inf), y.equals(y)
    # An infinite exponent and the largest have the same powers.
    power = DIALECT.number(
        b,
        b.apply(
            Pow(),
            number_.where(usual, size, 1).value,
            clamp(b, number_.where(real, y, 1).value, -_LARGEST[dtype], _LARGEST[dtype]),
        ),
    )
    whole = number_.floor(y).equals(y)
    odd = whole & number_.ne(number_.floor(y * 0.5) * 2, y)
    negative = number_.where(whole, number_.where(odd, -power, power), math.nan)
    edge = number_.where(odd, x, size)
    unusual = number_.where(y > 0, edge, number_.where(y.equals(0), 1, 1 / edge))
    found = number_.where(usual, number_.where(x < 0, negative, power), unusual)
    return number_.where(real | x.equals(1), found, math.nan).value


def _repeated(b: VgfBuilder, x: Value, exponent: int) -> Value:
    """A power as a product: POW has the digits of an exponential, fewer for larger exponents."""
    square, made = x, x if exponent % 2 else None
    for bit in range(1, abs(exponent).bit_length()):
        square = b.product(square, square)
        if abs(exponent) >> bit & 1:
            made = square if made is None else b.product(made, square)
    assert made is not None
    return made if exponent > 0 else b.apply(Reciprocal(), made)


#: TOSA's operators by the names of the compositions.
DIALECT: Final[Dialect[Value]] = Dialect(
    {
        "add": _two(Add()),
        "sub": _two(Sub()),
        "mul": lambda b, left, right: b.product(*_pair(b, left, right)),
        "div": _divided,
        "floor_divide": _floor_divide,
        "pow": _power,
        "minimum": _two(Minimum()),
        "maximum": _two(Maximum()),
        "eq": _comparison(Equal()),
        "gt": _comparison(Greater()),
        "lt": _comparison(Greater(), swap=True),
        "ge": _comparison(GreaterEqual()),
        "le": _comparison(GreaterEqual(), swap=True),
        "and": _logical(LogicalAnd()),
        "or": _logical(LogicalOr()),
        "xor": _logical(LogicalXor()),
        "not": lambda b, x: b.opposite(x),
        "bitwise_and": _two(BitwiseAnd()),
        "bitwise_or": _two(BitwiseOr()),
        "bitwise_xor": _two(BitwiseXor()),
        "neg": _negative,
        "abs": _one(Abs()),
        "sign": _sign,
        "floor": _one(Floor()),
        "ceil": _one(Ceil()),
        "round": _round,
        "sqrt": _root,
        "rsqrt": _one(Rsqrt()),
        "reciprocal": _one(Reciprocal()),
        "exp": _one(Exp()),
        "exp2": _exp2,
        "log": _one(Log()),
        "sin": _one(Sin()),
        "cos": _one(Cos()),
        "tanh": _tanh,
        "sigmoid": _one(Sigmoid()),
        "erf": _one(Erf()),
        "where": _where,
        "truth": lambda b, x: b.cast(x, DType.BOOL),
        "clamp": clamp,
        "slice": lambda b, x, axis, start, end: b.cut(x, axis, start, end),
        "concat": lambda b, values, axis: b.chain(values, axis),
        "insert": inserted,
        "drop": dropped,
        "places": _places,
        "integers": lambda b, x: b.cast(x, DType.INT32),
        "reduce_sum": _reduction(ReduceSum),
        "reduce_max": _reduction(ReduceMax),
        "reduce_min": _reduction(ReduceMin),
        "reduce_mean": mean,
    },
    lambda x: DIGITS.get(x.tensor.dtype, 0),
)

#: Of two values, of which one may be a Python number.
add, sub, mul, div = (DIALECT.primitives[name] for name in ("add", "sub", "mul", "div"))


def number(b: VgfBuilder, call: Call, name: str = "self") -> Number[Value] | float | None:
    """An argument for a composition: an operand in the result's floating-point type, a number as it is."""
    item, wanted = call[name], result_type(call)
    if isinstance(item, Operand):
        value = b.value(item)
        return DIALECT.number(b, b.cast(value, wanted) if wanted in FLOATS and name != "condition" else value)
    found: float | None = item
    return found


def _same(b: VgfBuilder, value: Value) -> Value:
    """A value itself: nothing changes one."""
    return value


#: Makes a lowering function of a composition: its operands, and arguments that it takes as they are.
composed: Final = functools.partial(lowering, argument=number, copied=_same)
