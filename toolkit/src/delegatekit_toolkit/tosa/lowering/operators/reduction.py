"""Reductions: sums and means as convolutions with ones, extremes, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import DType, MaxPool2d, Sub, Tensor

from ..builder import TosaBuilder
from ..filters import Filters, convolved, pointwise
from ..limits import KERNEL, MAX_AXIS, WINDOW
from ..program import LowerCall, ProgramBuilder
from ..values import Result, Scale, Value
from ..windows import Windows
from .common import Rows

#: Bytes of an input that justify a copy of it, which makes the summed elements contiguous.
_MOVED = 1 << 16
#: Channels that are read together.
_CHANNELS = 16
#: Up to this many samples a pool processes one by one, rather than moving the input.
_FEW_SAMPLES = 4


# -- constraints -----------------------------------------------------------------------------------------------------


def few_summands(call: Call) -> str | None:
    """At most 65536 elements are reduced."""
    shape = call["self"].shape
    size = math.prod(shape[axis] for axis in axes_of(call["dim"], len(shape)))
    return None if size <= MAX_AXIS else f"a sum of {size} elements: {MAX_AXIS} is the maximum"


def small_axes(call: Call) -> str | None:
    """Over axes of at most 256 elements, with at most 65536 results."""
    shape = call["self"].shape
    for axis in axes_of(call["dim"], len(shape)):
        size = shape[axis]
        if size > WINDOW[0]:
            return f"the extreme of {size} elements along an axis: {WINDOW[0]} is the maximum"
        if size > 1 and math.prod(shape) // size > MAX_AXIS:
            return f"{math.prod(shape) // size} extremes: {MAX_AXIS} is the maximum"
    return None


# -- lowerings -------------------------------------------------------------------------------------------------------


def _mean(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _summed(b, call, result, mean=True)


def _sum(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _summed(b, call, result, mean=False)


def _summed(b: ProgramBuilder, call: Call, result: Result, *, mean: bool) -> Value:
    operand = call["self"]
    value, before = b.integers(operand), b.scale(operand)
    axes = axes_of(call["dim"], len(value.order))
    size = math.prod([value.shape[axis] for axis in axes])
    if size == 1:
        made = b.requantized(value.tensor, before, result)
    else:
        made = _sums(b, value, before, axes, before.scale / size if mean else before.scale, result)
    return b.view(Value(made, value.order), call.result.shape)


def _sums(b: ProgramBuilder, value: Value, before: Scale, axes: Sequence[int], step: float, result: Result) -> Tensor:
    """Sums over axes, which are kept with size 1, as the integers of a result; `step` is the value of one."""
    places = sorted(value.stored_axis(axis) for axis in axes)
    shape = value.tensor.shape
    size, inner = math.prod([shape[place] for place in places]), math.prod(shape[places[-1] + 1 :])
    sizes = [1 if place in places else length for place, length in enumerate(shape)]

    def by_windows(b: TosaBuilder, x: Tensor) -> Tensor:
        """A depthwise convolution with ones over all rows; if there are too many channels, some are columns."""
        height = shape[places[0]] if channels == inner else size
        wide = size // height
        image = b.reshaped(x, (math.prod(shape[: places[0]]), height, wide * inner // channels, channels))
        ones = np.ones((channels, 1, height, wide), np.int8)
        filters = Filters(ones, np.ones(channels), groups=channels)
        windows = Windows((height, wide), (1, inner // channels))

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.stored_as(sums, [step], result)

        return b.reshaped(convolved(b, image, before, filters, windows, finish), sizes)

    def by_channels(b: TosaBuilder, x: Tensor) -> Tensor:
        """The summed elements are moved together, and a convolution with ones sums channels."""
        kept = [place for place in range(len(shape)) if place not in places]
        flat = b.reshaped(b.transposed(x, (*kept, *places)), (1, 1, math.prod([shape[place] for place in kept]), size))
        sums, _ = pointwise(b, flat, before, Filters(np.ones((1, size), np.int8), np.ones(1)))
        return b.reshaped(b.stored_as(sums, [step], result), sizes)

    together = places == list(range(places[0], places[-1] + 1))
    channels = _channels(inner)
    windows = together and inner > 1 and size <= KERNEL[1 if channels == inner else 0] and channels > 0
    # A large input is not copied.
    if windows and value.tensor.size > _MOVED:
        return b.cheapest(value.tensor, [by_windows], ("sum", *places), [by_channels])
    return b.cheapest(value.tensor, [by_channels, *[by_windows] * windows], ("sum", *places))


def _channels(inner: int) -> int:
    """The number of elements after an axis that are channels: all, or enough for few enough columns; or 0."""
    if inner <= MAX_AXIS:
        return inner
    least = max(_CHANNELS, math.ceil(inner / MAX_AXIS))
    return next((some for some in range(least, MAX_AXIS + 1) if inner % some == 0), 0)


def _extreme(*, largest: bool) -> LowerCall:
    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        """Pools over one axis after another: a compiler in use miscompiles REDUCE_MAX and REDUCE_MIN if the result gets
        another shape. The minimum is the maximum of the complemented numbers."""
        operand = call["self"]
        value, before = b.integers(operand), b.scale(operand)
        if not largest:
            value = Value(_turned(b, value.tensor), value.order)
        for axis in axes_of(call["dim"], len(value.order)):
            value = _largest(b, value, axis)
        if not largest:
            value = Value(_turned(b, value.tensor), value.order)
        made = b.requantized(value.tensor, before, result)
        return b.view(Value(made, value.order), call.result.shape)

    return lower


def _turned(b: ProgramBuilder, tensor: Tensor) -> Tensor:
    """-1 - x: the smallest integer becomes the largest, and none leaves its type."""
    if tensor.dtype == DType.INT8:
        return b.tabled(tensor, np.arange(127, -129, -1))
    operands = b.single(-1, tensor.shape, left=True), b.rescaled(tensor, [1.0], name="operand")
    turned = b.emit(Sub(), operands, tensor.shape, DType.INT32, "turned")
    return b.rescaled(turned, [1.0], dtype=tensor.dtype, name="turned")


def _largest(b: ProgramBuilder, value: Value, axis: int) -> Value:
    """The largest along an axis, which is kept with size 1."""
    place, shape = value.stored_axis(axis), value.tensor.shape
    size, order, tensor = shape[place], value.order, value.tensor
    if size == 1:
        return value
    if math.prod(shape[:place]) > _FEW_SAMPLES or place == len(shape) - 1:
        others = [other for other in range(len(shape)) if other != place]
        tensor, order = b.transposed(tensor, (place, *others)), (axis, *(order[other] for other in others))
        place, shape = 0, tensor.shape
    samples, channels = math.prod(shape[:place]), math.prod(shape[place + 1 :])
    image = b.reshaped(tensor, (samples, size, 1, channels))
    pooled = b.emit(MaxPool2d((size, 1)), (image,), (samples, 1, 1, channels), tensor.dtype, "extreme")
    return Value(b.reshaped(pooled, (*shape[:place], 1, *shape[place + 1 :])), order)


ROWS: Rows = (
    row("mean.dim", _mean, few_summands),
    row("sum.dim_IntList", _sum, few_summands),
    row("amax.default", _extreme(largest=True), small_axes),
    row("amin.default", _extreme(largest=False), small_axes),
)
