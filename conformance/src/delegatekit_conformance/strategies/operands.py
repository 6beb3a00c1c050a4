"""Numbers on which elementwise operators have a well determined answer, and pairs of operands with mixed dtypes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..recipe import Ref, Values
from .sketch import ALL, ALL_FLOATS, Sketch

#: All dtypes, with the order of `ALL`.
EVERY = (*ALL, "float64")
#: All but bool.
EVERY_NUMBER = tuple(dtype for dtype in EVERY if dtype != "bool")
#: Integers and bool, the commonest first.
EVERY_INTEGER = ("int64", "int32", "int16", "int8", "uint8", "bool")
#: One integer of each kind, for functions that convert them to float32 first.
FLOATS_AND_SOME = (*ALL_FLOATS, "int64", "uint8", "bool")


def computed(sketch: Sketch, x: Ref) -> Ref:
    """The same tensor, or one that is computed from it: data movement is taken beside computation only."""
    return exact_step(sketch, x) if sketch.rarely(3) else x


def exact_step(sketch: Sketch, x: Ref) -> Ref:
    """An operator that rounds nothing."""
    if sketch.dtype == "bool":
        return sketch.call("aten.logical_not.default", x)
    return sketch.call("aten.relu.default" if sketch.flag() else "aten.abs.default", x)


def is_float(dtype: str) -> bool:
    """True if a dtype is a floating-point one."""
    return dtype in ALL_FLOATS


def multiples(step: float, low: float, high: float) -> Values:
    """Multiples of a step between two bounds, both included."""
    count = round((high - low) / step)
    return ("among", tuple(low + step * index for index in range(count + 1)))


def extremes(dtype: str) -> Values:
    """The smallest and the largest integers of a dtype, and some between."""
    info = torch.iinfo(getattr(torch, dtype))
    pool = {info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max}
    return ("among", tuple(sorted(pool | (set() if dtype == "uint8" else {-1, -2, -7}))))


def large(dtype: str) -> Values:
    """Integers of either sign, some of which no float of the same or a smaller size holds exactly."""
    high = min(torch.iinfo(getattr(torch, dtype)).max, 2**62)
    pool = {high // 2 + 1, high // 3, high // 5 + 1, 17, 12, 6, 1, 0}
    if dtype == "int64":
        pool |= {2**53 + 1, 2**53, 2**24 + 1}
    elif dtype == "int32":
        pool |= {2**24 + 1, 2**24}
    return ("among", tuple(sorted(pool | (set() if dtype == "uint8" else {-number for number in pool}))))


def moderate(dtype: str) -> Values:
    """Integers of either sign beyond float16, and some beyond int16, all far within 32 bits."""
    info = torch.iinfo(getattr(torch, dtype))
    pool = (2**24 + 1, 100003, 70000, 65537, 40000, 32769, 2051, 259, 5, 0)
    return ("among", tuple(sorted(n * sign for n in pool for sign in (1, -1) if info.min <= n * sign <= info.max)))


def exact_numbers(dtype: str) -> Values:
    """Small numbers on which sums, products and comparisons are exact in every dtype; they are often equal."""
    if is_float(dtype):
        return multiples(0.5, -3, 3)
    return ("integers", 0, 1) if dtype == "bool" else ("integers", 0, 5) if dtype == "uint8" else ("integers", -4, 4)


def divisors(dtype: str) -> Values:
    """Numbers that are not zero."""
    if dtype == "bool":
        return ("integers", 1, 1)
    if is_float(dtype):
        return ("among", (-3.0, -2.0, -1.0, -0.75, -0.5, 0.5, 0.75, 1.0, 2.0, 3.0))
    return ("integers", 1, 7) if dtype == "uint8" else ("among", (-7, -3, -2, -1, 1, 2, 3, 7))


def integers(sketch: Sketch, dtype: str) -> Values:
    """Integers as they come: mostly small, sometimes larger, or at the ends of the dtype."""
    if dtype == "bool" or not sketch.rarely(2):
        return exact_numbers(dtype)
    return sketch.choice((moderate(dtype), large(dtype), extremes(dtype)))


def any_values(sketch: Sketch) -> Values:
    """Normal numbers for floats, integers as they come for others."""
    return ("normal",) if sketch.is_float else integers(sketch, sketch.dtype)


def scalar(sketch: Sketch, dtype: str, *, zero: bool = True) -> float | int:
    """A number beside a tensor: mostly of the tensor's kind, of either sign and exact in every dtype.

    Floats beside integers make the result a float; they come now and then.
    """
    if is_float(dtype) or sketch.rarely(5):
        pool: Sequence[float | int] = (2.0, 0.5, -1.5, 3, -1, 1.0, 0.0, 4.0)
    elif dtype == "bool":
        pool = (1, 2, True, 0, False)
    else:
        pool = (2, 3, 1, 7, 0) if dtype == "uint8" else (2, 3, -1, 1, -7, 0)
    return sketch.choice([number for number in pool if zero or number != 0])


def beyond(sketch: Sketch) -> float | int:
    """A number beside a tensor of floats outside their range: NaN, infinite, or too large for float16.

    Eager rounds it to the tensor's dtype first, which the oracle does not: the tensor must hold `exact_numbers`.
    """
    return sketch.choice((100000, -1e5, math.nan, math.inf, -math.inf))


def another(sketch: Sketch, allowed: Sequence[str] = EVERY) -> str:
    """The case's dtype, and once in a while another one: its partner in an operator that promotes dtypes."""
    others = [dtype for dtype in allowed if dtype != sketch.dtype]
    return sketch.choice(others) if others and sketch.rarely(4) else sketch.dtype


def pair(
    sketch: Sketch,
    values: Values | None = None,
    *,
    second: Values | None = None,
    allowed: Sequence[str] = EVERY,
    special: bool = False,
    swap: bool = True,
) -> tuple[Ref, Ref]:
    """Two operands that broadcast, the second perhaps a constant, of rank 0 or of another dtype.

    `values` and `second` are what tensors of the case's dtype hold; without, floats are normal numbers and integers
    are small, large or at the ends. Where dtypes differ, both hold numbers that are exact in every dtype: eager
    rounds a tensor of rank 0 to the other's dtype first, which the oracle's double precision does not. With `swap`,
    either may come first; then `second` must not matter.
    """
    shape, shape2 = _two_shapes(sketch)
    other = another(sketch, allowed)
    if other != sketch.dtype and sketch.flag():
        shape2 = ()
    if other != sketch.dtype:
        first, then = exact_numbers(sketch.dtype), divisors(other) if second else exact_numbers(other)
    else:
        first = values or _values(sketch, special)
        then = second or values or _values(sketch, special)
    x = sketch.tensor(shape, values=first)
    y = sketch.tensor(shape2, other, values=then, constant=sketch.rarely(4))
    return (y, x) if swap and sketch.flag() else (x, y)


def _two_shapes(sketch: Sketch) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, and one that broadcasts to it; often of equal sizes, where only numbers show the matching dimensions."""
    if not sketch.rarely(4):
        shape = sketch.shape()
        return shape, sketch.broadcast(shape)
    size, rank = sketch.integer(2, 4), sketch.integer(2, 4)
    return (size,) * rank, (size,) * sketch.integer(1, rank - 1)


def _values(sketch: Sketch, special: bool) -> Values:
    if not sketch.is_float:
        return integers(sketch, sketch.dtype)
    return ("special",) if special and sketch.rarely(4) else ("normal",)
