"""Trigonometric functions and their inverses."""

from __future__ import annotations

import math
from typing import Final

from .functions import quotient_of_sizes
from .number import Number, V, composition, cos, maximum, polynomial, sign, signbit, sin, sqrt, where

#: atan(x) / x as a polynomial in x^2 for x from 0 to tan(pi / 8); relative error 2e-8.
_ATAN: Final = (0.99999998199, -0.33332799194, 0.19974470347, -0.13852088143, 0.07986736295)


@composition
def tan(x: Number[V]) -> Number[V]:
    """The quotient of sine and cosine."""
    return sin(x) / cos(x)


@composition
def atan(x: Number[V]) -> Number[V]:
    """The angle of the inverse from 1 on, of (t - 1) / (t + 1) from tan(pi / 8) on, else a polynomial."""
    size = abs(x)
    inverted = size > 1
    size = where(inverted, 1 / maximum(size, 1), size)
    turned = size > math.tan(math.pi / 8)
    size = where(turned, (size - 1) / (size + 1), size)
    angle = size * polynomial(size * size, _ATAN)
    angle = where(turned, angle + math.pi / 4, angle)
    return sign(x) * where(inverted, math.pi / 2 - angle, angle)


@composition
def asin(x: Number[V]) -> Number[V]:
    """2 atan(x / (1 + sqrt((1 - x) (1 + x))))"""
    root = sqrt((1 - x) * (1 + x))
    return atan(x / (root + 1)) * 2


@composition
def acos(x: Number[V]) -> Number[V]:
    """2 atan(sqrt((1 - a) / (1 + a))) with a = |x|, which is exact near 1, and that of pi for x below 0."""
    size = abs(x)
    angle = atan(sqrt((1 - size) / (1 + size))) * 2
    return where(x < 0, math.pi - angle, angle)


@composition
def atan2(y: Number[V], x: Number[V]) -> Number[V]:
    """The angle of a point: that of the smaller coordinate over the larger, turned to where the point lies.

    Two infinities lie on the diagonal. The signs of zeros count where the target has them (`signbit`).
    """
    up, along = abs(y), abs(x)
    angle = atan(quotient_of_sizes(up, along))
    angle = where(up > along, math.pi / 2 - angle, angle)
    angle = where(signbit(x), math.pi - angle, angle)
    return where(signbit(y), -angle, angle)
