"""Functions that the processor lacks, composed of those that it has so that float16 suffices."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import LARGEST, DataType
from ..ir.values import Value
from .common import (
    NUMBERS,
    REAL,
    add,
    binary,
    compared,
    composed,
    div,
    larger,
    lesser,
    mul,
    operand,
    sub,
    unary,
    where,
)
from .program import Lower, ProgramBuilder

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


def expm1(b: ProgramBuilder, x: Value) -> Value:
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which is exact near 0, where the subtraction is not."""
    half = unary(b, "Tanh", mul(b, x, 0.5))
    near = div(b, add(b, half, half), sub(b, 1, half))
    is_near = compared(b, "Less", unary(b, "ElementWiseAbs", x), 1)
    return where(b, is_near, near, sub(b, exponential(b, x), 1))


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


def _exp2(b: ProgramBuilder, x: Value) -> Value:
    return exponential(b, mul(b, x, math.log(2)))


def _logarithm(base: float) -> Lower:
    return composed(lambda b, x: mul(b, logarithm(b, x), 1 / math.log(base)))


def softplus(b: ProgramBuilder, x: Value) -> Value:
    """ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|)."""
    below = unary(b, "ElementWiseNeg", unary(b, "ElementWiseAbs", x))
    return add(b, larger(b, x, 0), log1p(b, exponential(b, below)))


def _softplus(b: ProgramBuilder, call: Call) -> Value:
    x, beta = operand(b, call), call["beta"]
    scaled = x if beta == 1 else mul(b, x, beta)
    found = softplus(b, scaled)
    if beta != 1:
        found = div(b, found, beta)
    return where(b, compared(b, "Greater", scaled, call["threshold"]), x, found)


def _mish(b: ProgramBuilder, x: Value) -> Value:
    """Of a large number below 0 the softplus is not quite 0 here, and the product would be far from it."""
    return mul(b, within(b, x, -16.0, LARGEST), unary(b, "Tanh", softplus(b, x)))


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
    """Whether a number is so near 0, and the number, or the bound beyond it."""
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


def _asin(b: ProgramBuilder, x: Value) -> Value:
    """2 atan(x / (1 + sqrt((1 - x) (1 + x))))."""
    root = unary(b, "ElementWiseSquareRoot", mul(b, sub(b, 1, x), add(b, 1, x)))
    return mul(b, _atan(b, div(b, x, add(b, root, 1))), 2)


def _acos(b: ProgramBuilder, x: Value) -> Value:
    return sub(b, math.pi / 2, _asin(b, x))


def _tan(b: ProgramBuilder, x: Value) -> Value:
    """The quotient of sine and cosine is not exact near 0."""
    is_near, near = _near(b, x, 0.5)
    turned = _turned(b, x)
    far = div(b, _sin_of_turned(b, turned), _cos_of_turned(b, turned))
    return where(b, is_near, _series(b, near, 17 / 315, 2 / 15, 1 / 3, 1.0), far)


def _ratio(b: ProgramBuilder, least: Value, most: Value) -> Value:
    """A quotient whose divisor may be 0 where the dividend is, too: 0 there."""
    return div(b, least, where(b, compared(b, "Equal", most, 0), 1, most))


def _atan2(b: ProgramBuilder, call: Call) -> Value:
    """By the angle of the nearer axis, whose tangent is 1 at most."""
    y, x = operand(b, call), operand(b, call, "other")
    up, along = unary(b, "ElementWiseAbs", y), unary(b, "ElementWiseAbs", x)
    angle = _atan(b, _ratio(b, lesser(b, up, along), larger(b, up, along)))
    angle = where(b, compared(b, "Greater", up, along), sub(b, math.pi / 2, angle), angle)
    angle = where(b, compared(b, "Less", x, 0), sub(b, math.pi, angle), angle)
    return where(b, compared(b, "Less", y, 0), unary(b, "ElementWiseNeg", angle), angle)


def _hypot(b: ProgramBuilder, call: Call) -> Value:
    """Both are divided by the larger one before they are squared: float16 soon has no squares."""
    first, second = (unary(b, "ElementWiseAbs", operand(b, call, name)) for name in ("self", "other"))
    most = larger(b, first, second)
    part = _ratio(b, lesser(b, first, second), most)
    return mul(b, most, unary(b, "ElementWiseSquareRoot", add(b, mul(b, part, part), 1)))


def _sinh(b: ProgramBuilder, x: Value) -> Value:
    """The sign of x times (m + m / (m + 1)) / 2 with m = e^|x| - 1, which is exact near 0."""
    above = expm1(b, unary(b, "ElementWiseAbs", x))
    half = mul(b, add(b, above, div(b, above, add(b, above, 1))), 0.5)
    return mul(b, unary(b, "ElementWiseSign", x), half)


def _cosh(b: ProgramBuilder, x: Value) -> Value:
    half = mul(b, exponential(b, unary(b, "ElementWiseAbs", x)), 0.5)
    return add(b, half, div(b, 0.25, half))


#: From here on the square root of x^2 + 1 or x^2 - 1 is x for float16.
_FAR: Final = 64.0


def _asinh(b: ProgramBuilder, x: Value) -> Value:
    """The sign of x times ln(1 + a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|, which is exact near 0."""
    size = unary(b, "ElementWiseAbs", x)
    near = lesser(b, size, _FAR)
    square = mul(b, near, near)
    below = add(b, unary(b, "ElementWiseSquareRoot", add(b, square, 1)), 1)
    found = log1p(b, add(b, near, div(b, square, below)))
    far = add(b, unary(b, "ElementWiseLog", larger(b, size, _FAR)), math.log(2))
    return mul(b, unary(b, "ElementWiseSign", x), where(b, compared(b, "Less", size, _FAR), found, far))


def _acosh(b: ProgramBuilder, x: Value) -> Value:
    """ln(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1, which is exact near 1."""
    above = sub(b, lesser(b, x, _FAR), 1)
    root = mul(b, unary(b, "ElementWiseSquareRoot", above), unary(b, "ElementWiseSquareRoot", add(b, above, 2)))
    far = add(b, unary(b, "ElementWiseLog", larger(b, x, _FAR)), math.log(2))
    return where(b, compared(b, "Less", x, _FAR), log1p(b, add(b, above, root)), far)


def _atanh(b: ProgramBuilder, x: Value) -> Value:
    """Half of ln(1 + 2 x / (1 - x)) of |x|, with the sign of x."""
    size = unary(b, "ElementWiseAbs", x)
    half = mul(b, log1p(b, div(b, add(b, size, size), sub(b, 1, size))), 0.5)
    return mul(b, unary(b, "ElementWiseSign", x), half)


#: Abramowitz and Stegun, 7.1.26: within 1.5e-7.
_ERF: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_ERF_SCALE: Final = 0.3275911


def _erf(b: ProgramBuilder, x: Value) -> Value:
    size = lesser(b, unary(b, "ElementWiseAbs", x), 4.0)
    part = div(b, 1, add(b, mul(b, size, _ERF_SCALE), 1))
    found = mul(b, part, _ERF[0])
    for factor in _ERF[1:]:
        found = mul(b, add(b, found, factor), part)
    fallen = exponential(b, unary(b, "ElementWiseNeg", mul(b, size, size)))
    far = mul(b, unary(b, "ElementWiseSign", x), sub(b, 1, mul(b, found, fallen)))
    is_near, near = _near(b, x, 0.5)
    scale = 2 / math.sqrt(math.pi)
    return where(b, is_near, _series(b, near, -scale / 42, scale / 10, -scale / 3, scale), far)


# -- powers of tensors -------------------------------------------------------------------------------------------------


def _power(b: ProgramBuilder, call: Call) -> Value:
    base = call["self"]
    exponent = operand(b, call, "exponent")
    return power(b, float(base) if isinstance(base, int | float) else operand(b, call), exponent)


_NEGATIVE: Final = "powers of numbers below 0 depend on the device"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("exp2.default", composed(_exp2), NUMBERS),
    row("log2.default", _logarithm(2), NUMBERS),
    row("log10.default", _logarithm(10), NUMBERS),
    row("expm1.default", composed(expm1), NUMBERS),
    row("log1p.default", composed(log1p), NUMBERS),
    row("softplus.default", _softplus, REAL, keep=True),
    row("mish.default", composed(_mish), REAL, keep=True),
    row("sin.default", composed(_sin), NUMBERS),
    row("cos.default", composed(_cos), NUMBERS),
    row("atan.default", composed(_atan_of_all), NUMBERS),
    row("asin.default", composed(_asin), NUMBERS),
    row("acos.default", composed(_acos), NUMBERS),
    row("tan.default", composed(_tan), NUMBERS),
    row("atan2.default", _atan2, NUMBERS, special_values="the signs of zeros do not count"),
    row("hypot.default", _hypot, REAL, keep=True),
    row("sinh.default", composed(_sinh), NUMBERS),
    row("cosh.default", composed(_cosh), NUMBERS),
    row("asinh.default", composed(_asinh), NUMBERS),
    row("acosh.default", composed(_acosh), NUMBERS),
    row("atanh.default", composed(_atanh), NUMBERS),
    row("erf.default", composed(_erf), NUMBERS),
    row("erfc.default", composed(lambda b, x: sub(b, 1, _erf(b, x))), NUMBERS),
    row("pow.Tensor_Tensor pow.Scalar", _power, REAL, special_values=_NEGATIVE),
)
