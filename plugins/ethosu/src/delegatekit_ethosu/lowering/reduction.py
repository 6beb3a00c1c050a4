"""Reductions: sums and means as convolutions with ones, extremes, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument, axes_of

from ..layout import Value
from ..limits import KERNEL
from ..tosa import ReduceMax, ReduceMin, Tensor
from .context import Builder, Emitter, Lowering, Result, Scale, count
from .weighted import convolved, pointwise

if TYPE_CHECKING:
    from torch.fx import Node

#: Bytes of an input that are worth a copy of it: what is summed up lies together there.
_MOVED = 1 << 16


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
        """A depthwise convolution with ones over all rows."""
        height = _height(shape[places[0]], size)
        image = b.reshaped(x, (count(shape[: places[0]]), height, size // height, behind))
        ones = np.ones((behind, 1, height, size // height), np.int8)
        unit, nothing = np.ones(behind), (0, 0, 0, 0)
        settings = ((1, 1), nothing, (1, 1), behind, (1, 1))

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
    windows = together and behind > 1 and size <= KERNEL[1]
    # A large input is not copied.
    ways = [by_windows] if windows and value.tensor.size > _MOVED else [by_channels, *[by_windows] * windows]
    return b.cheapest(value.tensor, ways, ("sum", *places))


def _height(first: int, size: int) -> int:
    """The height of the window: that of the image, if it is not too high."""
    return first if first <= KERNEL[0] else 1


def _extreme(kind: type[ReduceMax] | type[ReduceMin]) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        operand = argument(node, "self")
        value = b.integers(operand)
        tensor = value.tensor
        for axis in axes_of(argument(node, "dim"), len(value.order)):
            place = value.stored_axis(axis)
            shape = [*tensor.shape[:place], 1, *tensor.shape[place + 1 :]]
            tensor = b.emit(kind(place), (tensor,), shape, tensor.dtype, "extreme")
        made = b.requantized(tensor, b.scale(operand), result)
        return b.view(Value(made, value.order), tuple(node.meta["val"].shape))

    return lower


def rows_of(b: Lowering, value: Value, dim: int) -> tuple[Tensor, tuple[int, ...]]:
    """The value as a matrix whose rows lie along one axis, and the order in which its axes lie then."""
    axis = dim % len(value.order)
    order = (*(other for other in value.order if other != axis), axis)
    tensor = b.stored(value, order)
    return b.reshaped(tensor, (count(tensor.shape[:-1]), tensor.shape[-1])), order


EMITTERS: dict[str, Emitter] = {
    "aten.mean.dim": _mean,
    "aten.sum.dim_IntList": _sum,
    "aten.amax.default": _extreme(ReduceMax),
    "aten.amin.default": _extreme(ReduceMin),
}
