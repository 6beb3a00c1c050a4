"""Exponentials, logarithms, hyperbolic functions, powers and the error function.

The accuracy that each docstring argues for is measured in `toolkit/tests/composed/test_accuracy.py`, in arithmetic that
rounds every operation to float32 or float16, against float64.
"""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call

from .number import (
    Number,
    Term,
    V,
    clamp,
    composition,
    exp,
    isinf,
    log,
    maximum,
    minimum,
    polynomial,
    rsqrt,
    sign,
    sqrt,
    where,
)

# -- exponentials and logarithms ---------------------------------------------------------------------------------------


@composition
def exp2(x: Number[V]) -> Number[V]:
    """2^x = e^(x ln 2): as exact as the product, whose rounding counts as often as x is large."""
    return exp(x * math.log(2))


@composition
def tanh(x: Number[V]) -> Number[V]:
    """1 - 2 / (e^2x + 1), which is exact but near 0; there, x times a polynomial in x^2."""
    size = abs(x)
    far = 1 - 2 / (exp(minimum(size, 16) * 2) + 1)
    return sign(x) * where(size < 0.5, small_tanh(minimum(size, 0.5)), far)


def small_tanh(x: Number[V]) -> Number[V]:
    """tanh of numbers from -0.5 to 0.5, for targets whose own is inexact there, too."""
    return x * polynomial(x * x, _TANH)


#: tanh(x) / x as a polynomial in x^2 for x from 0 to 0.5; relative error 1e-8.
_TANH: Final = (0.99999998687, -0.33333069394, 0.13324779316, -0.05298607516, 0.01713500638)


@composition
def sigmoid(x: Number[V]) -> Number[V]:
    """(1 + tanh(x / 2)) / 2"""
    return tanh(x * 0.5) * 0.5 + 0.5


@composition
def expm1(x: Number[V]) -> Number[V]:
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which is exact near 0, where the subtraction is not."""
    half = tanh(x * 0.5)
    near = (half + half) / (1 - half)
    return where(abs(x) < 1, near, exp(x) - 1)


@composition
def log1p(x: Number[V]) -> Number[V]:
    """ln(1 + x), and what the sum 1 + x lost of x, over it: only between these bounds it loses anything that counts."""
    near = clamp(x, -0.5, 1024.0)
    total = near + 1
    lost = (near - (total - 1)) / total
    return log(x + 1) + lost


@composition
def log2(x: Number[V]) -> Number[V]:
    """The logarithm of base 2."""
    return log(x) * (1 / math.log(2))


@composition
def log10(x: Number[V]) -> Number[V]:
    """The logarithm of base 10."""
    return log(x) * (1 / math.log(10))


# -- hyperbolic functions ----------------------------------------------------------------------------------------------


def _half_exp(size: Number[V]) -> Number[V]:
    """e^size / 2 as a square, which leaves the type no earlier than the result."""
    root = exp(size * 0.5)
    return root * (root * 0.5)


@composition
def sinh(x: Number[V]) -> Number[V]:
    """(m + m / (m + 1)) / 2 with m = e^|x| - 1 near 0, and h - 1 / 4h with h = e^|x| / 2; with the sign of x."""
    size = abs(x)
    below = expm1(minimum(size, 1))
    near = (below + below / (below + 1)) * 0.5
    half = _half_exp(size)
    return sign(x) * where(size < 1, near, half - 0.25 / half)


@composition
def cosh(x: Number[V]) -> Number[V]:
    """h + 1 / 4h with h = e^|x| / 2."""
    half = _half_exp(abs(x))
    return half + 0.25 / half


#: From here on the square root of x^2 + 1 or x^2 - 1 is x, but for what `_far` adds; float16 has the square.
_FAR: Final = 64.0


@composition
def asinh(x: Number[V]) -> Number[V]:
    """The sign of x times ln(1 + a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|, which is exact near 0."""
    size = abs(x)
    near = minimum(size, _FAR)
    square = near * near
    found = log1p(near + square / (sqrt(square + 1) + 1))
    return sign(x) * where(size < _FAR, found, _far(size, 0.25))


@composition
def acosh(x: Number[V]) -> Number[V]:
    """ln(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1, which is exact near 1; NaN below 1."""
    above = minimum(x, _FAR) - 1
    root = sqrt(above) * sqrt(above + 2)
    return where(x < _FAR, log1p(above + root), _far(x, -0.25))


def _far(x: Number[V], share: float) -> Number[V]:
    """ln(2 x) and a share of 1 / x^2, which only float32 has beside it."""
    size = maximum(x, _FAR)
    found = log(size) + math.log(2)
    if x.digits <= 11:
        return found
    inverse = 1 / size
    return found + inverse * inverse * share


@composition
def atanh(x: Number[V]) -> Number[V]:
    """Half of ln(1 + 2 a / (1 - a)) with a = |x|, with the sign of x; infinity at 1, NaN beyond."""
    size = abs(x)
    return sign(x) * (log1p((size + size) / (1 - size)) * 0.5)


# -- the error function ------------------------------------------------------------------------------------------------

#: erf(x) / x as a polynomial in x^2 for x from 0 to 1, by significant bits; relative errors 1e-9 and 3e-5.
_ERF: Final = {
    24: (1.1283791657, -0.3761262582, 0.1128358515, -0.0268538119, 0.0051883277, -0.0008010194, 0.0000785386),
    11: (1.1283474, -0.3751365, 0.1078337, -0.0183675),
}
#: erfc(x) e^(x^2) as a polynomial in t = 1 / (1 + 0.4 x), less its constant 0, for x from 1 to 10; 4e-8 and 3e-4.
_TAIL: Final = {
    24: (0.2256272224, 0.2266897107, 0.1987978188, 0.2130106432, 0.0083131761, 0.2435778227, -0.1162571692),
    11: (0.2205412, 0.2825234, -0.0084978, 0.4951294),
}
#: From here on the complement is 0 in float32.
_MOST: Final = 10.5


def _near_erf(size: Number[V]) -> Number[V]:
    near = minimum(size, 1)
    return near * polynomial(near * near, _ERF[24 if size.digits > 11 else 11])


def _tail(size: Number[V]) -> Number[V]:
    """1 - erf of a number of 1 or more."""
    far = minimum(size, _MOST)
    part = 1 / (far * 0.4 + 1)
    return part * polynomial(part, _TAIL[24 if size.digits > 11 else 11]) * exp(-(far * far))


@composition
def erf(x: Number[V]) -> Number[V]:
    """A polynomial up to 1, and from there 1 less a polynomial times e^-x^2; with the sign of x."""
    size = abs(x)
    return sign(x) * where(size < 1, _near_erf(size), 1 - _tail(size))


@composition
def erfc(x: Number[V]) -> Number[V]:
    """1 - erf(x), and from 1 on what `erf` would subtract from 1: there the difference has no digits."""
    size = abs(x)
    tail = _tail(size)
    found = where(size < 1, 1 - sign(x) * _near_erf(size), tail)
    return where(x > -1, found, 2 - tail)


# -- powers ------------------------------------------------------------------------------------------------------------

#: Exponents whose powers are products.
PRODUCTS: Final = (1, 2, 3, 4, -1, -2, -3, -4)


def powers_of_integers(call: Call) -> str | None:
    """Powers of integers have exponents of 1 to 4."""
    exponent = call["exponent"]
    whole = not call.result.dtype.is_floating_point
    return f"exponent = {exponent} of integers" if whole and exponent not in (1, 2, 3, 4) else None


def power(x: Number[V], exponent: Term[V]) -> Number[V]:
    """x^exponent: products and roots for the exponents that have them, whose powers of negative numbers are exact."""
    if isinstance(exponent, Number):
        return pow_(x, exponent)
    if exponent == 0.5:
        return sqrt(x)
    if exponent == -0.5:
        return rsqrt(x)
    if exponent not in PRODUCTS:
        return pow_(x, exponent)
    square = x * x if abs(exponent) > 1 else x
    product = {1: lambda: x, 2: lambda: square, 3: lambda: square * x, 4: lambda: square * square}[abs(int(exponent))]()
    return product if exponent > 0 else 1 / product


@composition
def pow_(x: Term[V], exponent: Term[V]) -> Number[V]:
    """x^exponent of positive x: e^(exponent ln x)."""
    if isinstance(x, Number):
        return exp(log(x) * exponent)
    assert isinstance(exponent, Number)
    return exp(exponent * math.log(x))


@composition
def hypot(x: Number[V], y: Number[V]) -> Number[V]:
    """The length of (x, y): the larger times the root of 1 + the square of their quotient, which does not overflow."""
    first, second = abs(x), abs(y)
    most, part = maximum(first, second), quotient_of_sizes(first, second)
    found = most * sqrt(part * part + 1)
    # An infinite coordinate beside NaN: the length is infinite.
    return where(isinf(x) | isinf(y), math.inf, found) if x.dialect.infinities else found


def quotient_of_sizes(first: Number[V], second: Number[V]) -> Number[V]:
    """The smaller of two sizes over the larger: 0 for two zeros, 1 for two infinities."""
    least, most = minimum(first, second), maximum(first, second)
    part = least / where(most.equals(0), 1, most)
    return where(least.equals(math.inf), 1, part) if first.dialect.infinities else part


@composition
def ldexp(x: Number[V], exponent: Number[V]) -> Number[V]:
    """x 2^exponent"""
    return x * exp2(exponent)
