"""The processor's operations by the names of the compositions, and compositions of its own, to which float16 suffices.

Its exponential, logarithm and trigonometric functions are inexact, or start anew, where these look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import Dialect, Number, Primitive
from delegatekit_toolkit.layout import identity

from ..ir.graph import Scalar
from ..ir.types import LARGEST, DataType
from ..ir.values import Value
from .common import (
    add,
    apply,
    as_numbers,
    as_result,
    binary,
    compared,
    div,
    larger,
    lesser,
    mul,
    operand,
    operation,
    sub,
    truncated,
    unary,
    where,
)
from .moves import concatenated, dropped, sliced
from .program import Lower, Made, ProgramBuilder
from .reductions import reduced

# -- exponentials and logarithms ---------------------------------------------------------------------------------------


#: Powers of e that float16 has: beyond them they are 0, or its largest number.
_EXPONENTS: Final = (-20.0, 12.0)


def exponential(b: ProgramBuilder, x: Value) -> Value:
    """e^x within what float16 has. Farther out the processor's own starts anew: to it e^-100 is -131008."""
    return unary(b, "ElementWiseExp", within(b, x, *_EXPONENTS))


def power(b: ProgramBuilder, base: Value | float, exponent: Value | float) -> Value:
    """A power, 0 where it is less than float16 has: the processor's own starts anew there, too."""
    if isinstance(base, int | float):
        assert isinstance(exponent, Value)
        if base > 0:
            steep = math.log(base) or 1.0
            exponent = within(b, exponent, *sorted(bound / steep for bound in _EXPONENTS))
        return binary(b, "ElementWisePower", base, exponent) if base else _power_of_zero(b, exponent)
    if not isinstance(exponent, Value) and exponent == 0:
        one = Value(b.scalar(1, base.tensor), ())
        return where(b, compared(b, "Equal", base, 0), one, one)  # of infinity, too
    size = unary(b, "ElementWiseAbs", base)
    steps = mul(b, unary(b, "ElementWiseLog", size), exponent)
    found = where(b, compared(b, "Less", steps, _EXPONENTS[0]), 0, binary(b, "ElementWisePower", base, exponent))
    if isinstance(exponent, Value):
        return where(b, compared(b, "Equal", size, 0), _power_of_zero(b, exponent), found)
    return where(b, compared(b, "Equal", size, 0), LARGEST, found) if exponent < 0 else found


def _power_of_zero(b: ProgramBuilder, exponent: Value) -> Value:
    """1, 0, or the largest number, as what stands for infinity. The processor's own power of 0 is always 0."""
    size = unary(b, "ElementWiseAbs", exponent)  # 0 with a sign does not equal 0
    falls = where(b, compared(b, "Less", exponent, 0), LARGEST, mul(b, size, 0))
    return where(b, compared(b, "Equal", size, 0), 1, falls)


def within(b: ProgramBuilder, x: Value, low: float, high: float) -> Value:
    """Floats between two bounds, and the nearer one beyond them."""
    bounds = {"min_value": Scalar(DataType.FLOAT32, low), "max_value": Scalar(DataType.FLOAT32, high)}
    return unary(b, "ReluMinMax", x, **bounds)


def log1p(b: ProgramBuilder, x: Value) -> Value:
    """ln(1 + x); near 0 as the series of 2 atanh(x / (x + 2)), since 1 + x would lose digits."""
    near = lesser(b, larger(b, x, -0.5), 1.0)
    part = div(b, near, add(b, near, 2))
    square = mul(b, part, part)
    series = add(b, mul(b, add(b, mul(b, add(b, mul(b, square, 2 / 7), 2 / 5), square), 2 / 3), square), 2)
    is_near = compared(b, "Less", unary(b, "ElementWiseAbs", x), 0.5)
    return where(b, is_near, mul(b, part, series), logarithm(b, add(b, x, 1)))


def logarithm(b: ProgramBuilder, x: Value) -> Value:
    """ln(x). Of 0 it is the least number, as what stands for minus infinity; the processor's own says -7.625."""
    return where(b, compared(b, "Equal", x, 0), -LARGEST, unary(b, "ElementWiseLog", x))


# -- angles ------------------------------------------------------------------------------------------------------------


#: Of a larger tangent the cube of the inverse is nothing.
_STEEP: Final = 16.0


def _series(b: ProgramBuilder, x: Value, *factors: float) -> Value:
    """x times a polynomial in x^2, whose factors are given from the highest power down."""
    square = mul(b, x, x)
    found = mul(b, square, factors[0])
    for factor in factors[1:-1]:
        found = mul(b, add(b, found, factor), square)
    return mul(b, x, add(b, found, factors[-1]))


def _near(b: ProgramBuilder, x: Value, bound: float) -> tuple[Value, Value]:
    """True where a number is nearer to 0 than the bound, and the number clamped to it."""
    return compared(b, "Less", unary(b, "ElementWiseAbs", x), bound), lesser(b, larger(b, x, -bound), bound)


def _atan(b: ProgramBuilder, x: Value) -> Value:
    """The processor's is not exact near 0."""
    is_near, near = _near(b, x, 0.25)
    return where(b, is_near, _series(b, near, -1 / 7, 1 / 5, -1 / 3, 1.0), unary(b, "ElementWiseAtan", x))


def _atan_of_all(b: ProgramBuilder, x: Value) -> Value:
    """The processor's is not exact far out, either: there it is a quarter turn less the inverse."""
    quarter = mul(b, unary(b, "ElementWiseSign", x), math.pi / 2)
    size = unary(b, "ElementWiseAbs", x)
    far = sub(b, quarter, div(b, 1, mul(b, unary(b, "ElementWiseSign", x), larger(b, size, _STEEP))))
    return where(b, compared(b, "Greater", size, _STEEP), far, _atan(b, within(b, x, -_STEEP, _STEEP)))


def _turned(b: ProgramBuilder, x: Value) -> Value:
    """An angle without its whole turns, of which 6 and 9/32 are taken exactly: the processor's functions go wrong."""
    turns = unary(b, "ElementWiseRound", mul(b, x, 0.5 / math.pi))
    for part in (6.0, 0.28125, 2 * math.pi - 6.28125):
        x = sub(b, x, mul(b, turns, part))
    return x


def _cos(b: ProgramBuilder, x: Value) -> Value:
    return _cos_of_turned(b, _turned(b, x))


def _cos_of_turned(b: ProgramBuilder, x: Value) -> Value:
    """The sine of what is left of a quarter turn: beyond that the processor's own are off by 0.0025."""
    return _sin_within(b, _left(b, unary(b, "ElementWiseAbs", x)))


def _left(b: ProgramBuilder, x: Value) -> Value:
    """A quarter turn less an angle: the turn in two parts, of which float16 has the first exactly."""
    high = 1.5703125
    return add(b, sub(b, high, x), math.pi / 2 - high)


def _sin_within(b: ProgramBuilder, x: Value) -> Value:
    """The sine within a quarter turn of 0. The processor's is not exact near 0."""
    is_near, near = _near(b, x, 0.5)
    return where(b, is_near, _series(b, near, 1 / 120, -1 / 6, 1.0), unary(b, "ElementWiseSin", x))


def _sin(b: ProgramBuilder, x: Value) -> Value:
    return _sin_of_turned(b, _turned(b, x))


def _sin_of_turned(b: ProgramBuilder, x: Value) -> Value:
    """Beyond a quarter turn that of as much before half a turn."""
    size = unary(b, "ElementWiseAbs", x)
    folded = _left(b, unary(b, "ElementWiseAbs", _left(b, size)))
    is_far = compared(b, "Greater", size, math.pi / 2)
    return _sin_within(b, where(b, is_far, mul(b, unary(b, "ElementWiseSign", x), folded), x))


def _tan(b: ProgramBuilder, x: Value) -> Value:
    """The quotient of sine and cosine is not exact near 0."""
    is_near, near = _near(b, x, 0.5)
    turned = _turned(b, x)
    far = div(b, _sin_of_turned(b, turned), _cos_of_turned(b, turned))
    return where(b, is_near, _series(b, near, 17 / 315, 2 / 15, 1 / 3, 1.0), far)


# -- logic -------------------------------------------------------------------------------------------------------------


def truth(b: ProgramBuilder, value: Value) -> Value:
    """True where numbers are not 0."""
    value = b.floats(value)
    if value.tensor.datatype is DataType.BOOL:
        return value
    zero = Value(b.scalar(0, value.tensor), ())
    return operation(b, "ElementWiseNotEqual", [value, zero], DataType.BOOL)


def _sign(b: ProgramBuilder, x: Value) -> Value:
    if x.tensor.datatype is DataType.INT32:
        return lesser(b, larger(b, x, -1), 1)
    return unary(b, "ElementWiseSign", x)


# -- the dialect -------------------------------------------------------------------------------------------------------


def _one(kind: str) -> Primitive[Value]:
    return lambda b, x: unary(b, kind, x)


def _compared(kind: str) -> Primitive[Value]:
    return lambda b, left, right: compared(b, kind, left, right)


def _logical(kind: str) -> Primitive[Value]:
    return lambda b, left, right: operation(b, kind, [left, right], DataType.BOOL)


def _reduced(kind: str) -> Primitive[Value]:
    return lambda b, x, axes, keep: reduced(b, kind, x, axes, keep, (DataType.FLOAT32, None))


def _inserted(b: ProgramBuilder, x: Value, axis: int) -> Value:
    return Value(b.reshaped(b.dense(x), (*x.shape[:axis], 1, *x.shape[axis:])), identity(x.rank + 1))


def _dropped(b: ProgramBuilder, x: Value, axes: Sequence[int]) -> Value:
    for axis in sorted(axes, reverse=True):
        x = dropped(b, x, axis)
    return x


def _places(b: ProgramBuilder, x: Value, axis: int) -> Value:
    along = np.arange(x.shape[axis], dtype=np.int32).reshape([-1 if at == axis else 1 for at in range(x.rank)])
    return Value(b.constant(np.ascontiguousarray(np.broadcast_to(along, x.shape))), identity(x.rank))


def _digits(x: Value) -> int:
    """The processor computes floats in float16."""
    return 11 if x.tensor.datatype.is_float else -1 if x.tensor.datatype is DataType.BOOL else 0


DIALECT: Final[Dialect[Value]] = Dialect(
    {
        "add": add,
        "sub": sub,
        "mul": mul,
        "div": div,
        "minimum": lesser,
        "maximum": larger,
        "neg": _one("ElementWiseNeg"),
        "abs": _one("ElementWiseAbs"),
        "sign": _sign,
        "floor": _one("ElementWiseFloor"),
        "ceil": _one("ElementWiseCeil"),
        "round": _one("ElementWiseRound"),
        "trunc": truncated,
        "sqrt": _one("ElementWiseSquareRoot"),
        "rsqrt": _one("ElementWiseRsqrt"),
        "exp": exponential,
        "log": logarithm,
        "log1p": log1p,
        "pow": power,
        "tanh": _one("Tanh"),
        "sigmoid": _one("Sigmoid"),
        "sin": _sin,
        "cos": _cos,
        "tan": _tan,
        "atan": _atan_of_all,
        **{
            name: _compared(kind)
            for name, kind in {
                "eq": "Equal",
                "ne": "NotEqual",
                "lt": "Less",
                "le": "LessEqual",
                "gt": "Greater",
                "ge": "GreaterEqual",
            }.items()
        },
        "signbit": lambda b, x: compared(b, "Less", x, 0),
        "truth": truth,
        "and": _logical("ElementWiseAnd"),
        "or": _logical("ElementWiseOr"),
        "xor": _logical("ElementWiseXor"),
        "not": lambda b, x: Value(apply(b, "ElementWiseNot", [x.tensor], DataType.BOOL), x.order),
        "where": where,
        "slice": sliced,
        "concat": concatenated,
        "insert": _inserted,
        "drop": _dropped,
        "places": _places,
        "integers": as_numbers,
        **{f"reduce_{kind.lower()}": _reduced(f"Reduce{kind}") for kind in ("Sum", "Mean", "Max", "Min")},
    },
    _digits,
    infinities=False,
)


def _number(b: ProgramBuilder, call: Call, name: str) -> Number[Value] | float | None:
    """An argument for a composition: an operand in floats if the result is, a number as it is."""
    item = call[name]
    return DIALECT.number(b, b.floats(operand(b, call, name))) if isinstance(item, Operand) else item


def composed(
    make: Callable[..., Any], operands: str = "self", arguments: str = "", *, elementwise: bool = True
) -> Lower:
    """A composition of operands, in floats, followed by arguments as they are; both named with spaces between them."""

    def lower(b: ProgramBuilder, call: Call) -> Made:
        numbers = [_number(b, call, name) for name in operands.split()]
        rest = [call[name] for name in arguments.split()]
        match numbers:
            case [Number(value=x)] if x.rank > 4 and elementwise:
                # Between operations that want fewer axes and those that do not the library fails to reshape.
                shape = x.tensor.shape
                flat = Value(b.reshaped(x.tensor, (1, 1, math.prod(shape[:-1]), shape[-1])), identity(4))
                made = make(DIALECT.number(b, flat), *rest).value
                return as_result(b, call, Value(b.reshaped(made.tensor, shape), x.order))
        made = make(*numbers, *rest)
        return tuple(item.value for item in made) if isinstance(made, tuple) else as_result(b, call, made.value)

    return lower


def composed_along(make: Callable[..., Any], operands: str = "self", arguments: str = "") -> Lower:
    """The same of a composition along axes, which sees all of them."""
    return composed(make, operands, arguments, elementwise=False)
