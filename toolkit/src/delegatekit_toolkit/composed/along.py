"""Operators along axes: variances, norms, distances, what runs up to each element, gates.

Beside the primitives of numbers these need "slice" (x, axis, start, end), "concat" (values, axis), "insert" (x, axis: a
new axis of size 1), "places" (x, axis: where each element is along it), "integers" (of booleans), and "reduce_sum",
"reduce_mean", "reduce_max" and "reduce_min" (x, axes, keepdim), "drop" (x, axes of size 1). "reduce_l2_norm" a target
may have.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final

from delegatekit_api import Call

from ..arguments import axes_of, axis_of
from .functions import pow_, sigmoid
from .number import Number, V, isnan, maximum, sqrt, times, truth, where, write

#: No divisor is smaller: the smallest normal number of float16, twice.
_LEAST_DIVISOR: Final = 2.0**-13


def _reduced(kind: str, x: Number[V], axes: Sequence[int], keepdim: bool = True) -> Number[V]:
    return write(f"reduce_{kind}", x, tuple(axes), keepdim) if axes else x


# -- variances ---------------------------------------------------------------------------------------------------------


def _correction(correction: float | None) -> float:
    return 1.0 if correction is None else float(correction)


def enough_elements(call: Call) -> str | None:
    """There are more elements than the correction, which is 0 where their number changes."""
    correction, shape = _correction(call["correction"]), call["self"].shape
    sizes = [shape[axis] for axis in axes_of(call.get("dim"), len(shape))]
    if not all(isinstance(size, int) for size in sizes):
        return f"correction {correction:g} of a number of elements that changes" if correction else None
    count = math.prod(sizes)
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def _spread(x: Number[V], axes: Sequence[int], correction: float) -> tuple[Number[V], Number[V] | float]:
    """The variance over the square of a divisor, and the divisor.

    That is 1, and in float16 the largest difference from the mean: larger differences than 255 have no squares there.
    """
    rest, most = x - _reduced("mean", x, axes), None
    if x.digits <= 11:
        most = _largest(rest, axes)
        rest = rest / most
    found = _reduced("mean", rest * rest, axes)
    if correction:
        count = math.prod(x.shape[axis] for axis in axes)
        found = times(found, count / (count - correction))
    return found, 1 if most is None else most


def _largest(x: Number[V], axes: Sequence[int]) -> Number[V]:
    return maximum(_reduced("max", abs(x), axes), _LEAST_DIVISOR)


def var(x: Number[V], dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> Number[V]:
    """The mean square of the differences from the mean, of `count - correction` elements."""
    axes = axes_of(dim, len(x.shape))
    if not axes:
        return x - x
    found, most = _spread(x, axes, _correction(correction))
    return _finished(found if most == 1 else found * most * most, axes, keepdim)


def std(x: Number[V], dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> Number[V]:
    """The root of the variance, which itself may leave float16."""
    axes = axes_of(dim, len(x.shape))
    if not axes:
        return x - x
    found, most = _spread(x, axes, _correction(correction))
    return _finished(sqrt(found) if most == 1 else sqrt(found) * most, axes, keepdim)


def var_mean(
    x: Number[V], dim: Sequence[int] | None, correction: float | None, keepdim: bool
) -> tuple[Number[V], Number[V]]:
    """The variance, and the mean."""
    return var(x, dim, correction, keepdim), _reduced("mean", x, axes_of(dim, len(x.shape)), keepdim)


def _finished(x: Number[V], axes: Sequence[int], keepdim: bool) -> Number[V]:
    return x if keepdim else write("drop", x, tuple(axes))


# -- norms -------------------------------------------------------------------------------------------------------------


def known_order(*orders: float) -> Callable[[Call], str | None]:
    """A constraint: the order of a norm is one of these; 2 is the default."""

    def check(call: Call) -> str | None:
        order = next(call[name] for name in ("ord", "p") if call.has(name))
        return None if (2.0 if order is None else float(order)) in orders else f"the norm of order {order}"

    check.__doc__ = f"The order of the norm is one of {', '.join(f'{order:g}' for order in orders)}."
    return check


def norm(x: Number[V], order: float | None, dim: Sequence[int] | None, keepdim: bool) -> Number[V]:
    """The norm of some order along axes: 2 if none is given."""
    return _length(x, 2.0 if order is None else float(order), axes_of(dim, len(x.shape)), keepdim)


def _length(x: Number[V], order: float, axes: Sequence[int], keepdim: bool) -> Number[V]:
    size = abs(x)
    if order == 0:
        # (NaN counts, too.)
        return _reduced("sum", where(size.equals(0), size, 1), axes, keepdim)
    if order == 1:
        return _reduced("sum", size, axes, keepdim)
    if order == math.inf:
        return _reduced("max", size, axes, keepdim)
    if order == -math.inf:
        return _reduced("min", size, axes, keepdim)
    if order != 2:
        return pow_(_reduced("sum", pow_(size, order), axes, keepdim), 1 / order)
    if "reduce_l2_norm" in x.dialect.primitives:
        return _reduced("l2_norm", size, axes, keepdim)
    if x.digits > 11:
        return sqrt(_reduced("sum", x * x, axes, keepdim))
    most = _largest(size, axes)
    part = size / most
    return _finished(sqrt(_reduced("sum", part * part, axes)) * most, axes, keepdim)


def cdist(first: Number[V], second: Number[V], p: float) -> Number[V]:
    """The norm of the difference between each row of one and each of the other."""
    left: Number[V] = write("insert", first, len(first.shape) - 1)
    right: Number[V] = write("insert", second, len(second.shape) - 2)
    difference = left - right
    return _length(difference, float(p), (len(difference.shape) - 1,), False)


# -- up to each element ------------------------------------------------------------------------------------------------


def _part(x: Number[V], axis: int, start: int, end: int) -> Number[V]:
    return x if (start, end) == (0, x.shape[axis]) else write("slice", x, axis, start, end)


def running(
    parts: Sequence[Number[V]],
    dim: int,
    join: Callable[[Sequence[Number[V]], Sequence[Number[V]]], Sequence[Number[V]]],
) -> list[Number[V]]:
    """All elements up to each, joined by `join`: 1, 2, 4, ... elements with as many before them."""
    found, axis = list(parts), axis_of(dim, len(parts[0].shape))
    size, step = found[0].shape[axis], 1
    while step < size:
        later = [_part(item, axis, step, size) for item in found]
        earlier = [_part(item, axis, 0, size - step) for item in found]
        found = [
            write("concat", [_part(old, axis, 0, step), new], axis)
            for old, new in zip(found, join(later, earlier), strict=True)
        ]
        step *= 2
    return found


def cumsum(x: Number[V], dim: int) -> Number[V]:
    """The sum of all elements up to each, in log2(n) additions one after the other."""
    return running([x], dim, lambda later, earlier: [later[0] + earlier[0]])[0]


def cumprod(x: Number[V], dim: int) -> Number[V]:
    """The product of all elements up to each."""
    return running([x], dim, lambda later, earlier: [later[0] * earlier[0]])[0]


def cummax(x: Number[V], dim: int) -> tuple[Number[V], Number[V]]:
    """The largest element up to each, and where the last of its equals is."""
    return _record(x, dim, operator.gt)


def cummin(x: Number[V], dim: int) -> tuple[Number[V], Number[V]]:
    """The smallest element up to each, and where the last of its equals is."""
    return _record(x, dim, operator.lt)


def _record(x: Number[V], dim: int, beats: Callable[[Number[V], Number[V]], Number[V]]) -> tuple[Number[V], Number[V]]:
    def join(later: Sequence[Number[V]], earlier: Sequence[Number[V]]) -> list[Number[V]]:
        stays = beats(earlier[0], later[0])
        if x.is_float and x.dialect.infinities:
            stays = stays | (isnan(earlier[0]) & ~isnan(later[0]))
        return [where(stays, old, new) for new, old in zip(later, earlier, strict=True)]

    numbers: Number[V] = write("integers", x) if x.is_bool else x
    places: Number[V] = write("places", x, axis_of(dim, len(x.shape)))
    values, at = running([numbers, places], dim, join)
    return truth(values) if x.is_bool else values, at


# -- gates -------------------------------------------------------------------------------------------------------------


def glu(x: Number[V], dim: int) -> Number[V]:
    """One half along an axis times the sigmoid of the other."""
    axis = axis_of(dim, len(x.shape))
    half = x.shape[axis] // 2
    return _part(x, axis, 0, half) * sigmoid(_part(x, axis, half, 2 * half))
