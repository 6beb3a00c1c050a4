"""Reductions: sums and means as convolutions with ones, extremes, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument, axes_of
from delegatekit_toolkit.tosa import DType, MaxPool2d, Sub, Tensor

from ..ir.builder import Builder, Emitter, Lowering, Result, Scale
from ..ir.values import Value
from ..limits import KERNEL, MAX_AXIS, count
from .weighted import convolved, pointwise

if TYPE_CHECKING:
    from torch.fx import Node

#: Bytes of an input that are worth a copy of it: what is summed up lies together there.
_MOVED = 1 << 16
#: Channels that are read together.
_CHANNELS = 16
#: Up to so many samples a pool goes through one by one rather than that the input is moved.
_FEW_SAMPLES = 4


def _mean(b: Lowering, node: Node, result: Result) -> Value:
    return _summed(b, node, result, mean=True)


def _sum(b: Lowering, node: Node, result: Result) -> Value:
    return _summed(b, node, result, mean=False)


def _summed(b: Lowering, node: Node, result: Result, *, mean: bool) -> Value:
    operand = argument(node, "self")
    value, before = b.integers(operand), b.scale(operand)
    axes = axes_of(argument(node, "dim"), len(value.order))
    size = count([value.shape[axis] for axis in axes])
    if size == 1:
        made = b.requantized(value.tensor, before, result)
    else:
        made = _sums(b, value, before, axes, before.scale / size if mean else before.scale, result)
    return b.view(Value(made, value.order), tuple(node.meta["val"].shape))


def _sums(b: Lowering, value: Value, before: Scale, axes: Sequence[int], step: float, result: Result) -> Tensor:
    """Sums over axes, which stay with size 1, as the integers of a result; `step` is what one stands for."""
    places = sorted(value.stored_axis(axis) for axis in axes)
    shape = value.tensor.shape
    size, behind = count([shape[place] for place in places]), count(shape[places[-1] + 1 :])
    sizes = [1 if place in places else length for place, length in enumerate(shape)]

    def by_windows(b: Builder, x: Tensor) -> Tensor:
        """A depthwise convolution with ones over all rows; of more channels than there may be some are columns."""
        height = _height(shape[places[0]], size) if channels == behind else size
        wide = size // height
        image = b.reshaped(x, (count(shape[: places[0]]), height, wide * behind // channels, channels))
        ones = np.ones((channels, 1, height, wide), np.int8)
        unit, nothing = np.ones(channels), (0, 0, 0, 0)
        settings = ((1, 1), nothing, (1, 1), channels, (1, behind // channels))

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.stored_as(sums, [step], result)

        return b.reshaped(convolved(b, image, before, ones, unit, None, *settings, finish), sizes)

    def by_channels(b: Builder, x: Tensor) -> Tensor:
        """What is summed up is brought together, and a convolution with ones sums channels."""
        kept = [place for place in range(len(shape)) if place not in places]
        flat = b.reshaped(b.transposed(x, (*kept, *places)), (1, 1, count([shape[place] for place in kept]), size))
        sums, _ = pointwise(b, flat, before, np.ones((1, size), np.int8), np.ones(1), None)
        return b.reshaped(b.stored_as(sums, [step], result), sizes)

    together = places == list(range(places[0], places[-1] + 1))
    channels = _channels(behind)
    windows = together and behind > 1 and size <= KERNEL[1 if channels == behind else 0] and channels > 0
    # A large input is not copied.
    if windows and value.tensor.size > _MOVED:
        return b.cheapest(value.tensor, [by_windows], ("sum", *places), [by_channels])
    return b.cheapest(value.tensor, [by_channels, *[by_windows] * windows], ("sum", *places))


def _channels(behind: int) -> int:
    """How many of the elements behind an axis are channels: all, or so many that there are few enough columns; or 0."""
    if behind <= MAX_AXIS:
        return behind
    fitting = range(_CHANNELS, MAX_AXIS + 1)
    return next((some for some in fitting if behind % some == 0 and behind // some <= MAX_AXIS), 0)


def _height(first: int, size: int) -> int:
    """The height of the window: that of the image, if it is not too high."""
    return first if first <= KERNEL[0] else 1


def _extreme(*, largest: bool) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        """Pools over one axis after the other: what Vela (5.1) makes of REDUCE_MAX and REDUCE_MIN is not reliable if
        the result gets another shape. The smallest is the largest of the numbers turned round."""
        operand = argument(node, "self")
        value, before = b.integers(operand), b.scale(operand)
        if not largest:
            value = Value(_turned(b, value.tensor), value.order)
        for axis in axes_of(argument(node, "dim"), len(value.order)):
            value = _largest(b, value, axis)
        if not largest:
            value = Value(_turned(b, value.tensor), value.order)
        made = b.requantized(value.tensor, before, result)
        return b.view(Value(made, value.order), tuple(node.meta["val"].shape))

    return lower


def _turned(b: Lowering, tensor: Tensor) -> Tensor:
    """-1 - x: the smallest integer becomes the largest, and none leaves its type."""
    if tensor.dtype == DType.INT8:
        return b.tabled(tensor, np.arange(127, -129, -1))
    operands = b.single(-1, tensor.shape, left=True), b.rescaled(tensor, [1.0], name="operand")
    turned = b.emit(Sub(), operands, tensor.shape, DType.INT32, "turned")
    return b.rescaled(turned, [1.0], dtype=tensor.dtype, name="turned")


def _largest(b: Lowering, value: Value, axis: int) -> Value:
    """The largest along an axis, which stays with size 1."""
    place, shape = value.stored_axis(axis), value.tensor.shape
    size, order, tensor = shape[place], value.order, value.tensor
    if size == 1:
        return value
    if count(shape[:place]) > _FEW_SAMPLES or place == len(shape) - 1:
        others = [other for other in range(len(shape)) if other != place]
        tensor, order = b.transposed(tensor, (place, *others)), (axis, *(order[other] for other in others))
        place, shape = 0, tensor.shape
    samples, channels = count(shape[:place]), count(shape[place + 1 :])
    image = b.reshaped(tensor, (samples, size, 1, channels))
    pooled = b.emit(MaxPool2d((size, 1)), (image,), (samples, 1, 1, channels), tensor.dtype, "extreme")
    return Value(b.reshaped(pooled, (*shape[:place], 1, *shape[place + 1 :])), order)


def rows_of(b: Lowering, value: Value, dim: int) -> tuple[Tensor, tuple[int, ...]]:
    """The value as a matrix whose rows lie along one axis, and the order in which its axes lie then."""
    axis = dim % len(value.order)
    order = (*(other for other in value.order if other != axis), axis)
    tensor = b.stored(value, order)
    return b.reshaped(tensor, (count(tensor.shape[:-1]), tensor.shape[-1])), order


EMITTERS: dict[str, Emitter] = {
    "aten.mean.dim": _mean,
    "aten.sum.dim_IntList": _sum,
    "aten.amax.default": _extreme(largest=True),
    "aten.amin.default": _extreme(largest=False),
}
