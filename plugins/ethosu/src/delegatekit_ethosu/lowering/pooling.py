"""Pools over windows of feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument, operator_name

from ..layout import CHANNELS_LAST, ROWS_OF_CHANNELS, Value
from ..limits import KERNEL, per_axis
from ..tosa import AvgPool2d, DType, MaxPool2d, Tensor
from .context import Emitter, Lowering, Result, Scale
from .weighted import convolved, fitted_pads

if TYPE_CHECKING:
    from torch.fx import Node

_ONE_ROW = (1, 1), (0, 0)


def _image(b: Lowering, node: Node) -> tuple[Tensor, tuple[int, int]]:
    """The input of a pool as (N, H, W, C), one row for (N, C, L), and the sizes of the result."""
    value, sizes = b.integers(argument(node, "self")), tuple(node.meta["val"].shape[2:])
    if len(sizes) == 2:
        return b.stored(value, CHANNELS_LAST), sizes
    tensor = b.stored(value, ROWS_OF_CHANNELS)
    return b.reshaped(tensor, (tensor.shape[0], 1, *tensor.shape[1:])), (1, *sizes)


def _value(b: Lowering, node: Node, made: Tensor) -> Value:
    """What `_image` began, ended."""
    if len(node.meta["val"].shape) == 4:
        return Value(made, CHANNELS_LAST)
    return Value(b.reshaped(made, (made.shape[0], *made.shape[2:])), ROWS_OF_CHANNELS)


def _window(node: Node, name: str, one_row: int) -> tuple[int, int]:
    """A setting along height and width."""
    given = argument(node, name)
    if name == "stride" and not given:
        given = argument(node, "kernel_size")
    axes = len(node.meta["val"].shape) - 2
    found = per_axis(given, axes, one_row)
    return (found[0], found[1]) if axes == 2 else (one_row, found[0])


def _maximum(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    kernel, stride, padding = (_window(node, name, one) for name, one in (("kernel_size", 1), ("stride", 1), ("padding", 0)))
    x, pads = fitted_pads(b, x, kernel, stride, padding, (1, 1), sizes)
    operator = MaxPool2d(kernel, _small(stride, sizes), pads)
    made = b.emit(operator, (x,), (x.shape[0], *sizes, x.shape[3]), x.dtype, "maximum")
    return _value(b, node, b.requantized(made, b.scale(argument(node, "self")), result))


def _small(stride: tuple[int, int], sizes: Sequence[int]) -> tuple[int, int]:
    """Strides of axes with one window are never made."""
    high, wide = (1 if size == 1 else step for step, size in zip(stride, sizes, strict=True))
    return high, wide


def _average(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    kernel, stride, padding = (_window(node, name, one) for name, one in (("kernel_size", 1), ("stride", 1), ("padding", 0)))
    divisor = argument(node, "divisor_override") if "2d" in operator_name(node) else None
    before = b.scale(argument(node, "self"))
    x, pads = fitted_pads(b, x, kernel, stride, padding, (1, 1), sizes)
    counted = argument(node, "count_include_pad") or divisor is not None or not any(padding)
    made = averaged(b, x, before, result, kernel, _small(stride, sizes), pads, sizes, divisor, counted=counted)
    return _value(b, node, made)


def averaged(
    b: Lowering,
    x: Tensor,
    before: Scale,
    result: Result,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    sizes: tuple[int, ...],
    divisor: int | None = None,
    *,
    counted: bool = True,
) -> Tensor:
    """Averages over windows of (N, H, W, C).

    Where the result has the scale of the input, the NPU's own average is exact. Else it would be rounded twice: sums
    are a depthwise convolution with ones then, and rounded once.
    """
    shape = (x.shape[0], *sizes, x.shape[3])
    plain = divisor in (None, math.prod(kernel)) and not (counted and any(pads))
    small = x.shape[0] == 1 and (not any(pads) or max(kernel) <= 8)
    fits = kernel[0] <= KERNEL[0] and math.prod(kernel) <= KERNEL[1]
    if plain and small and (before == result.scale or not fits or not counted):
        zero = b.number(before.zero_point, before.dtype)
        made = b.emit(AvgPool2d(kernel, stride, pads), (x, zero, zero), shape, x.dtype, "average")
        return b.requantized(made, before, result)
    ones = np.ones((x.shape[3], 1, *kernel), np.int8)
    steps = np.full(x.shape[3], 1 / (divisor or math.prod(kernel)))
    groups = x.shape[3]
    sums, scales = convolved(b, x, before, ones, steps, None, stride, pads, (1, 1), groups, sizes)
    return b.stored_as(sums, scales, result)


def _adaptive(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    high, wide = (old // new for old, new in zip(x.shape[1:3], sizes, strict=True))
    before = b.scale(argument(node, "self"))
    made = averaged(b, x, before, result, (high, wide), _small((high, wide), sizes), (0, 0, 0, 0), sizes)
    return _value(b, node, made)


EMITTERS: dict[str, Emitter] = {
    "aten.max_pool1d.default": _maximum,
    "aten.max_pool2d.default": _maximum,
    "aten.avg_pool1d.default": _average,
    "aten.avg_pool2d.default": _average,
    "aten.adaptive_avg_pool1d.default": _adaptive,
    "aten._adaptive_avg_pool2d.default": _adaptive,
}
