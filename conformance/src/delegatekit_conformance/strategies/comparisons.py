"""Comparisons, and the choice between two tensors."""

from __future__ import annotations

import math

from ..recipe import Recipe, Values
from .operands import EVERY, EVERY_NUMBER, another, beyond, exact_numbers, integers, multiples, pair, scalar
from .registry import operator
from .sketch import Sketch

_COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")


def _often_equal(sketch: Sketch) -> Values:
    """Numbers that are often equal to one another, NaN and infinities among floats, large ones among integers."""
    if not sketch.is_float:
        return integers(sketch, sketch.dtype)
    kinds: tuple[Values, ...] = (exact_numbers(sketch.dtype), ("special", -2, 2))
    return sketch.choice(kinds)


def _mostly_near(sketch: Sketch) -> Values:
    """Likewise, with few ordinary numbers: of each three pairs one is equal, wherever a kernel treats them apart."""
    found = _often_equal(sketch)
    if sketch.dtype == "bool" or found != exact_numbers(sketch.dtype):
        return found
    if sketch.is_float:
        return multiples(0.5, -0.5, 0.5)
    return ("integers", 0, 2) if sketch.dtype == "uint8" else ("integers", -1, 1)


@operator(*(f"aten.{name}.Tensor" for name in _COMPARISONS), dtypes=EVERY)
def _comparison(sketch: Sketch, name: str) -> Recipe:
    x, y = pair(sketch, _mostly_near(sketch))
    sketch.call(name, x, y)
    return sketch.recipe(exact=True)


@operator(*(f"aten.{name}.Scalar" for name in _COMPARISONS), dtypes=EVERY)
def _comparison_with_number(sketch: Sketch, name: str) -> Recipe:
    values, number = _often_equal(sketch), scalar(sketch, sketch.dtype)
    if sketch.is_float and sketch.rarely(5):
        number, values = beyond(sketch), exact_numbers(sketch.dtype)
    elif sketch.dtype == "int64" and sketch.rarely(4):
        values, number = ("among", (2**53, 2**53 + 1, -(2**53) - 1)), 2**53 + 1
    elif isinstance(number, float):
        values = exact_numbers(sketch.dtype)  # large integers are compared as floats
    sketch.call(name, sketch.tensor(sketch.shape(), values=values), number)
    return sketch.recipe(exact=True)


@operator("aten.where.self", dtypes=EVERY)
def _where(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    shapes = [shape, sketch.broadcast(shape), sketch.broadcast(shape)]
    if sketch.flag():
        shapes.reverse()
    condition = sketch.tensor(shapes[0], "bool")
    other = another(sketch)
    if other != sketch.dtype and sketch.flag():
        shapes[2] = ()
    values = _often_equal(sketch) if other == sketch.dtype else exact_numbers(sketch.dtype)
    x = sketch.tensor(shapes[1], values=values)
    y = sketch.tensor(shapes[2], other, values=values if other == sketch.dtype else exact_numbers(other))
    sketch.call(name, condition, *((x, y) if sketch.flag() else (y, x)))
    return sketch.recipe(exact=True)


@operator("aten.where.ScalarSelf", "aten.where.ScalarOther", dtypes=EVERY)
def _where_number(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    condition = sketch.tensor(sketch.broadcast(shape), "bool")
    number = scalar(sketch, sketch.dtype)
    x = sketch.tensor(shape, values=exact_numbers(sketch.dtype))
    sketch.call(name, condition, *((number, x) if name == "aten.where.ScalarSelf" else (x, number)))
    return sketch.recipe(exact=True)


@operator("aten.where.Scalar", dtypes=("bool",))
def _where_numbers(sketch: Sketch, name: str) -> Recipe:
    pool = (1.0, 0.5, -2, 3, True, 0)
    sketch.call(name, sketch.tensor(sketch.shape()), sketch.choice(pool), sketch.choice(pool))
    return sketch.recipe(exact=True)


@operator("aten.masked_fill.Scalar", "aten.masked_fill.Tensor", dtypes=EVERY)
def _masked_fill(sketch: Sketch, name: str) -> Recipe:
    shape = sketch.shape()
    x = sketch.tensor(shape, values=_often_equal(sketch))
    mask = sketch.tensor(sketch.broadcast(shape), "bool")
    if name == "aten.masked_fill.Tensor":
        sketch.call(name, x, mask, sketch.tensor((), values=exact_numbers(sketch.dtype), constant=sketch.flag()))
        return sketch.recipe(exact=True)
    numbers: tuple[float, ...] = (0.0, -math.inf, 1.5, -2, math.nan) if sketch.is_float else (0, 1, 3)
    sketch.call(name, x, mask, True if sketch.dtype == "bool" else sketch.choice(numbers))
    return sketch.recipe(exact=True)


@operator("aten.isclose.default", dtypes=EVERY_NUMBER)
def _isclose(sketch: Sketch, name: str) -> Recipe:
    x, y = pair(sketch, exact_numbers(sketch.dtype), allowed=())
    kwargs = {"rtol": 0.0, "atol": sketch.choice((0.75, 1.25))} if sketch.is_float and sketch.flag() else {}
    sketch.call(name, x, y, **kwargs)
    return sketch.recipe(exact=True)
