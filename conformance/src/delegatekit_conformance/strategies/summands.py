"""Numbers for sums, and lists of one number per spatial dimension: shared by the families of layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..recipe import Ref, Values
from .sketch import Sketch

#: This many results of normal numbers are never all small beside their summands.
_MANY = 16


def summands(sketch: Sketch, results: Sequence[int], *, weighted: bool = False) -> Values:
    """The kind of numbers that are added up with signs, for `results` sums in the shape given.

    Errors are measured against the largest result. Where there are few, a sum may cancel out and the rounding errors
    of its summands remain; so there the numbers are whole, whose sums are exact, or of one sign. In a `weighted` sum,
    a mean for one, each summand is multiplied before it is added, which rounds whole numbers, too: all have one sign.
    """
    whole = ("integers", 0, 3) if sketch.dtype in ("uint8", "bool") else ("integers", -3, 3)
    if not sketch.is_float:
        return whole if sketch.dtype != "bool" else ("integers", 0, 1)
    kinds: list[Values] = [("integers", 1, 3) if weighted else whole, ("uniform", 0.25, 1.25)]
    # An expanded tensor repeats itself along its first dimension.
    if min(math.prod(results[1:]), math.prod(results)) >= _MANY:
        kinds += [("normal",), ("normal",)]
    return sketch.choice(kinds)


def per_dim(sketch: Sketch, rank: int, low: int, high: int) -> list[int]:
    """A number for each spatial dimension, often the same for all."""
    if not sketch.flag():
        return [sketch.integer(low, high)] * rank
    return [sketch.integer(low, high) for _ in range(rank)]


def written(sketch: Sketch, numbers: Sequence[int]) -> list[int]:
    """The numbers as a list, or one for all where they are the same and the list may be of one."""
    return [numbers[0]] if len(set(numbers)) == 1 and sketch.rarely(3) else list(numbers)


def maybe(sketch: Sketch, shape: Sequence[int], values: Values | None = None, *, layouts: bool = True) -> Ref | None:
    """A weight, mostly a constant, or None. Without `layouts`, it is contiguous."""
    if sketch.rarely(3):
        return None
    return sketch.tensor(shape, values=values, constant=not sketch.rarely(4), layouts=layouts)


def batch(sketch: Sketch) -> list[int]:
    """The dimensions before the channels: one of size 1 to 3 (now and then 0), or none for unbatched input."""
    if sketch.rarely(5):
        return []
    return [0] if sketch.rarely(15) else [sketch.integer(1, 3)]
