"""Pools over windows of feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from delegatekit_api import argument, operator_name, per_axis
from delegatekit_toolkit.tosa import AvgPool2d, DType, MaxPool2d, Mul, Tensor
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Emitter, Lowering, Result, Scale
from ..ir.values import CHANNELS_LAST, ROWS_OF_CHANNELS, Value
from ..limits import PADDED_WINDOW
from .weighted import convolved, fitted_pads, possible_strides, thinned

if TYPE_CHECKING:
    from torch.fx import Node

#: Factors that differ by no more are the same.
_SAME = 2.0**-40
#: 1, where averages have divisors of their own.
_ONE = 1 << 22


def _image(b: Lowering, node: Node) -> tuple[Tensor, tuple[int, int]]:
    """The input of a pool as (N, H, W, C), one row for (N, C, L), and the sizes of the result."""
    value, sizes = b.integers(argument(node, "self")), tuple(node.meta["val"].shape[2:])
    if len(sizes) == 2:
        return b.stored(value, CHANNELS_LAST), (sizes[0], sizes[1])
    tensor = b.stored(value, ROWS_OF_CHANNELS)
    return b.reshaped(tensor, (tensor.shape[0], 1, *tensor.shape[1:])), (1, sizes[0])


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


def _settings(node: Node) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Kernel, stride and padding."""
    return _window(node, "kernel_size", 1), _window(node, "stride", 1), _window(node, "padding", 0)


def _maximum(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    kernel, stride, padding = _settings(node)
    steps, further, counts = possible_strides(stride, sizes)
    x, pads = fitted_pads(b, x, kernel, steps, padding, (1, 1), counts)
    made = b.emit(MaxPool2d(kernel, steps, pads), (x,), (x.shape[0], *counts, x.shape[3]), x.dtype, "maximum")
    made = thinned(b, made, further)
    return _value(b, node, b.requantized(made, b.scale(argument(node, "self")), result))


def _average(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    kernel, stride, padding = _settings(node)
    before = b.scale(argument(node, "self"))
    factors = _factors(node, x, kernel, stride, padding)
    leaves_out = any(padding) and not argument(node, "count_include_pad")
    if before == result.scale and leaves_out and x.shape[0] == 1 and max(kernel) <= PADDED_WINDOW:
        steps, further, counts = possible_strides(stride, sizes)
        x, pads = fitted_pads(b, x, kernel, steps, padding, (1, 1), counts)
        return _value(b, node, thinned(b, _native(b, x, before, result, kernel, steps, pads, counts), further))
    made = averaged(b, x, before, result, kernel, stride, padding, sizes, factors)
    return _value(b, node, made)


def _factors(
    node: Node, x: Tensor, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> Array:
    """1 / divisor for each place of the result, (H, W): what PyTorch makes of ones."""
    ones = torch.ones(1, 1, *x.shape[1:3], dtype=torch.float64)
    ceil, counted = bool(argument(node, "ceil_mode")), bool(argument(node, "count_include_pad"))
    override = argument(node, "divisor_override") if "2d" in operator_name(node) else None
    pool = torch.nn.functional.avg_pool2d
    means = pool(ones, kernel, stride, padding, ceil, counted, override)
    sums = pool(ones, kernel, stride, padding, ceil, divisor_override=1)
    found: Array = (means / sums)[0, 0].numpy()
    return found


def averaged(
    b: Lowering,
    x: Tensor,
    before: Scale,
    result: Result,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    sizes: tuple[int, int],
    factors: Array,
) -> Tensor:
    """Averages over windows of (N, H, W, C): sums times `factors`, one for each place (H, W).

    Where the result has the scale of the input, the NPU's own average is exact. Else it would be rounded twice: sums
    are a depthwise convolution with ones then, and rounded once.
    """
    steps, further, counts = possible_strides(stride, sizes)
    x, pads = fitted_pads(b, x, kernel, steps, padding, (1, 1), counts)
    even = float(factors.max()) if np.ptp(factors) < _SAME * factors.max() else None
    if before == result.scale and not any(pads) and x.shape[0] == 1 and even == 1 / math.prod(kernel):
        return thinned(b, _native(b, x, before, result, kernel, steps, pads, counts), further)
    ones, channels = np.ones((x.shape[3], 1, *kernel), np.int8), x.shape[3]
    settings = (steps, pads, (1, 1), channels, counts)
    if even is not None:

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.stored_as(sums, scales, result)

        return thinned(b, convolved(b, x, before, ones, np.full(channels, even), None, *settings, finish), further)
    sums = convolved(b, x, before, ones, np.ones(channels), None, *settings, lambda sums, scales: sums)
    sums = thinned(b, sums, further)
    # A divisor for each place: at most 255 * 2^22 here.
    reciprocals = b.graph.constant(np.rint(factors[None, ..., None] * _ONE), DType.INT32, f"{b.name}.factors")
    products = b.emit(Mul(), (sums, reciprocals, b.number(0)), sums.shape, DType.INT32, "product")
    return b.stored_as(products, [before.scale / _ONE], result)


def _native(
    b: Lowering,
    x: Tensor,
    before: Scale,
    result: Result,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    pads: tuple[int, int, int, int],
    sizes: tuple[int, int],
) -> Tensor:
    zero = b.number(before.zero_point, before.dtype)
    shape = (x.shape[0], *sizes, x.shape[3])
    made = b.emit(AvgPool2d(kernel, stride, pads), (x, zero, zero), shape, x.dtype, "average")
    return b.requantized(made, before, result)


def _adaptive(b: Lowering, node: Node, result: Result) -> Value:
    x, sizes = _image(b, node)
    high, wide = (old // new for old, new in zip(x.shape[1:3], sizes, strict=True))
    factors = np.full(sizes, 1 / (high * wide))
    before = b.scale(argument(node, "self"))
    made = averaged(b, x, before, result, (high, wide), (high, wide), (0, 0), sizes, factors)
    return _value(b, node, made)


EMITTERS: dict[str, Emitter] = {
    "aten.max_pool1d.default": _maximum,
    "aten.max_pool2d.default": _maximum,
    "aten.avg_pool1d.default": _average,
    "aten.avg_pool2d.default": _average,
    "aten.adaptive_avg_pool1d.default": _adaptive,
    "aten._adaptive_avg_pool2d.default": _adaptive,
}
