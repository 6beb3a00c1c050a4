"""Images made larger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument

from ..layout import CHANNELS_LAST, Value
from ..tosa import Concat, DType, Resize, ResizeMode, Tensor
from .context import Emitter, Lowering, Result
from .weighted import convolved

if TYPE_CHECKING:
    from torch.fx import Node


def _nearest(b: Lowering, node: Node, result: Result) -> Value:
    operand = argument(node, "input")
    x = b.stored(b.integers(operand), CHANNELS_LAST)
    made = _repeated(b, x, _factor(node))
    return Value(b.requantized(made, b.scale(operand), result), CHANNELS_LAST)


def _factor(node: Node) -> int:
    size: int = node.meta["val"].shape[2] // argument(node, "input").meta["val"].shape[2]
    return size


def _resized(b: Lowering, x: Tensor, factor: int, mode: ResizeMode, dtype: DType, name: str) -> Tensor:
    """Between the centres of pixels: 2 * factor steps from one to the next, of which the result takes every second."""
    shape = (x.shape[0], x.shape[1] * factor, x.shape[2] * factor, x.shape[3])
    scale = b.sizes((2 * factor, 2, 2 * factor, 2))
    offset, border = b.sizes((1 - factor, 1 - factor)), b.sizes((factor - 1, factor - 1))
    return b.emit(Resize(mode), (x, scale, offset, border), shape, dtype, name)


def _repeated(b: Lowering, x: Tensor, factor: int) -> Tensor:
    """Each pixel `factor` times along both axes.

    The smaller accelerators do it for one sample, and by two: Vela (5.1) fails at larger factors whose result is joined
    with others.
    """
    if b.family == "u85":
        return _resized(b, x, factor, ResizeMode.NEAREST, x.dtype, "repeated")
    sample, parts = (1, *x.shape[1:]), []
    for place in range(x.shape[0]):
        part = b.sliced(x, (place, 0, 0, 0), sample)
        for _ in range(factor.bit_length() - 1):
            part = _resized(b, part, 2, ResizeMode.NEAREST, x.dtype, "repeated")
        parts.append(part)
    if len(parts) == 1:
        return parts[0]
    return b.emit(Concat(0), parts, (len(parts), *parts[0].shape[1:]), x.dtype, "samples")


def _bilinear(b: Lowering, node: Node, result: Result) -> Value:
    operand, factor = argument(node, "input"), _factor(node)
    x, before = b.stored(b.integers(operand), CHANNELS_LAST), b.scale(operand)
    if b.family == "u85" and before == result.scale and before.dtype == DType.INT8:
        made = _resized(b, x, factor, ResizeMode.BILINEAR, DType.INT32, "between")
        plain = b.rescaled(made, [1 / (2 * factor) ** 2], dtype=x.dtype)
        return Value(b.clamped(plain, result), CHANNELS_LAST)
    # The others have bilinear resizing between corners only, and to another scale it would be rounded twice. Repeated
    # pixels, averaged with a window of factor + 1 pixels of which the outer ones count half, are the same numbers.
    bordered = _bordered(b, _bordered(b, x, 1), 2)
    large = _repeated(b, bordered, factor)
    high, wide = x.shape[1] * factor, x.shape[2] * factor
    batch, channels = x.shape[0], x.shape[3]
    half = factor // 2
    inner = b.sliced(large, (0, half, half, 0), (batch, high + factor, wide + factor, channels))
    taps = np.array([1, *[2] * (factor - 1), 1])
    kernel = np.broadcast_to(np.outer(taps, taps), (channels, 1, factor + 1, factor + 1)).astype(np.int8)
    steps = np.full(channels, 1 / (2 * factor) ** 2)

    def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
        return b.stored_as(sums, scales, result)

    settings = ((1, 1), (0, 0, 0, 0), (1, 1), channels, (high, wide))
    return Value(convolved(b, inner, before, kernel, steps, None, *settings, finish), CHANNELS_LAST)


def _bordered(b: Lowering, x: Tensor, axis: int) -> Tensor:
    """The first and the last row (column) twice."""
    edge = [*x.shape]
    edge[axis] = 1
    first = b.sliced(x, (0, 0, 0, 0), edge)
    last = b.sliced(x, [x.shape[axis] - 1 if place == axis else 0 for place in range(4)], edge)
    shape = [*x.shape]
    shape[axis] += 2
    return b.emit(Concat(axis), (first, x, last), shape, x.dtype, "bordered")


EMITTERS: dict[str, Emitter] = {
    "aten.upsample_nearest2d.vec": _nearest,
    "aten.upsample_bilinear2d.vec": _bilinear,
}
