"""Pools over windows of feature maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import AvgPool2d, DType, MaxPool2d, Mul, Tensor
from delegatekit_toolkit.tosa.types import Array

from ..filters import Filters, convolved
from ..limits import KERNEL, PADDED_WINDOW, WINDOW
from ..program import ProgramBuilder
from ..values import CHANNELS_LAST, ROWS_OF_CHANNELS, Result, Scale, Value
from ..windows import Pair, Windows, fitted, thinned
from .common import Rows, is_wide, size_obstacle

#: 1, for averages with divisors of their own.
_ONE: Final = 1 << 22


_NO_BATCH: Final = "its input has no batch axis"


# -- constraints -----------------------------------------------------------------------------------------------------


def _axes(call: Call) -> int:
    """The number of axes of a pool's windows."""
    return 1 if "1d" in call.operator else 2


def _is_batch(call: Call) -> bool:
    """True if the input has a batch axis."""
    return bool(call["self"].rank == _axes(call) + 2)


def pools_maximum(call: Call) -> str | None:
    """Windows to 256 high, no dilation, with a batch axis."""
    kernel, dilation = (per_axis(call[name], _axes(call), 1) for name in ("kernel_size", "dilation"))
    if not _is_batch(call):
        return _NO_BATCH
    if max(dilation) > 1:
        return f"a maximum with dilation {tuple(dilation)}"
    return size_obstacle(kernel, WINDOW, "window")


def pools_average(call: Call) -> str | None:
    """Windows to 64 high and of 4096 elements, with a batch axis."""
    if not _is_batch(call):
        return _NO_BATCH
    return size_obstacle(per_axis(call["kernel_size"], _axes(call), 1), KERNEL, "window")


def even_windows(call: Call) -> str | None:
    """The result's sizes divide the input's; windows to 64 high and of 4096 elements, with a batch axis."""
    if not _is_batch(call):
        return _NO_BATCH
    before, after = call["self"].shape[2:], call.result.shape[2:]
    if any(old % new for old, new in zip(before, after, strict=True)):
        return f"{before} is not a multiple of {after}"
    return size_obstacle([old // new for old, new in zip(before, after, strict=True)], KERNEL, "window")


def even_divisors(call: Call) -> str | None:
    """In int16 all windows have one divisor: padding counts, sizes are not rounded up."""
    if not is_wide(call):
        return None
    if call["ceil_mode"]:
        return "its sizes are rounded up (ceil_mode): windows have different divisors"
    if any(per_axis(call["padding"], _axes(call), 0)) and not call["count_include_pad"]:
        return "its averages exclude the padding: windows have different divisors"
    return None


# -- lowerings -------------------------------------------------------------------------------------------------------


def _image(b: ProgramBuilder, call: Call) -> tuple[Tensor, Pair]:
    """The input of a pool as (N, H, W, C), one row for (N, C, L), and the sizes of the result."""
    value, sizes = b.integers(call["self"]), call.result.shape[2:]
    if len(sizes) == 2:
        return b.stored(value, CHANNELS_LAST), (sizes[0], sizes[1])
    tensor = b.stored(value, ROWS_OF_CHANNELS)
    return b.reshaped(tensor, (tensor.shape[0], 1, *tensor.shape[1:])), (1, sizes[0])


def _value(b: ProgramBuilder, call: Call, made: Tensor) -> Value:
    """The inverse of `_image`."""
    if call.result.rank == 4:
        return Value(made, CHANNELS_LAST)
    return Value(b.reshaped(made, (made.shape[0], *made.shape[2:])), ROWS_OF_CHANNELS)


def _setting(call: Call, name: str, one_row: int) -> Pair:
    """A setting along height and width."""
    given = call[name]
    if name == "stride" and not given:
        given = call["kernel_size"]
    axes = call.result.rank - 2
    found = per_axis(given, axes, one_row)
    return (found[0], found[1]) if axes == 2 else (one_row, found[0])


def _windows(call: Call, sizes: Pair) -> Windows:
    padding = _setting(call, "padding", 0)
    return Windows(_setting(call, "kernel_size", 1), sizes, _setting(call, "stride", 1)).padded(padding, padding)


def _maximum(b: ProgramBuilder, call: Call, result: Result) -> Value:
    x, sizes = _image(b, call)
    windows, further = _windows(call, sizes).possible()
    x, windows = fitted(b, x, windows)
    shape = (x.shape[0], *windows.sizes, x.shape[3])
    made = b.emit(MaxPool2d(windows.kernel, windows.stride, windows.pads), (x,), shape, x.dtype, "maximum")
    made = thinned(b, made, further)
    return _value(b, call, b.requantized(made, b.scale(call["self"]), result))


def _average(b: ProgramBuilder, call: Call, result: Result) -> Value:
    x, sizes = _image(b, call)
    windows, before = _windows(call, sizes), b.scale(call["self"])
    divisors = _divisors(call, x, windows)
    # The NPU's own average divides by the elements of each window that are in the image.
    leaves_out = any(windows.pads) and not call["count_include_pad"] and not call.get("divisor_override")
    if before == result.scale and leaves_out and x.shape[0] == 1 and max(windows.kernel) <= PADDED_WINDOW:
        possible, further = windows.possible()
        x, possible = fitted(b, x, possible)
        return _value(b, call, thinned(b, _native(b, x, before, result, possible), further))
    return _value(b, call, _averaged(b, x, before, result, windows, divisors))


def _divisors(call: Call, x: Tensor, windows: Windows) -> Array:
    """The divisor at each position of the result, (H, W): PyTorch's result for ones."""
    ones = torch.ones(1, 1, *x.shape[1:3], dtype=torch.float64)
    ceil, counted, override = call["ceil_mode"], call["count_include_pad"], call.get("divisor_override")
    settings = windows.kernel, windows.stride, windows.padding, ceil
    pool = torch.nn.functional.avg_pool2d
    sums, averages = pool(ones, *settings, divisor_override=1), pool(ones, *settings, counted, override)
    found: Array = (sums / averages)[0, 0].round().numpy()
    return found


def _averaged(b: ProgramBuilder, x: Tensor, before: Scale, result: Result, windows: Windows, divisors: Array) -> Tensor:
    """Averages over windows of (N, H, W, C): sums by `divisors`, one for each place (H, W).

    If the result has the scale of the input, the NPU's own average is exact. Otherwise it would be rounded twice: then
    sums are a depthwise convolution with ones, rounded once.
    """
    windows, further = windows.possible()
    x, windows = fitted(b, x, windows)
    divisor = float(divisors[0, 0])
    even = bool((divisors == divisor).all())
    alone = not any(windows.pads) and x.shape[0] == 1
    if before == result.scale and alone and even and divisor == math.prod(windows.kernel):
        return thinned(b, _native(b, x, before, result, windows), further)
    channels = x.shape[3]
    ones = np.ones((channels, 1, *windows.kernel), np.int8)
    if even:

        def finish(sums: Tensor, scales: Sequence[float]) -> Tensor:
            return b.stored_as(sums, scales, result)

        filters = Filters(ones, np.full(channels, 1 / divisor), groups=channels)
        return thinned(b, convolved(b, x, before, filters, windows, finish), further)
    filters = Filters(ones, np.ones(channels), groups=channels)
    sums = convolved(b, x, before, filters, windows, lambda sums, scales: sums)
    sums = thinned(b, sums, further)
    # A divisor for each position: at most 255 * 2^22 here.
    reciprocals = b.graph.constant(np.rint(_ONE / divisors[None, ..., None]), DType.INT32, f"{b.name}.factors")
    products = b.emit(Mul(), (sums, reciprocals, b.number(0)), sums.shape, DType.INT32, "product")
    return b.stored_as(products, [before.scale / _ONE], result)


def _native(b: ProgramBuilder, x: Tensor, before: Scale, result: Result, windows: Windows) -> Tensor:
    zero = b.number(before.zero_point, before.dtype)
    operator = AvgPool2d(windows.kernel, windows.stride, windows.pads)
    made = b.emit(operator, (x, zero, zero), (x.shape[0], *windows.sizes, x.shape[3]), x.dtype, "average")
    return b.requantized(made, before, result)


def _adaptive(b: ProgramBuilder, call: Call, result: Result) -> Value:
    x, sizes = _image(b, call)
    high, wide = (old // new for old, new in zip(x.shape[1:3], sizes, strict=True))
    windows = Windows((high, wide), sizes, (high, wide))
    divisors = np.full(sizes, float(high * wide))
    return _value(b, call, _averaged(b, x, b.scale(call["self"]), result, windows, divisors))


ROWS: Rows = (
    row("max_pool1d.default max_pool2d.default", _maximum, pools_maximum, keep=True),
    row("avg_pool1d.default", _average, pools_average, even_divisors, keep=True),
    row("avg_pool2d.default", _average, pools_average, even_divisors),
    row("adaptive_avg_pool1d.default", _adaptive, even_windows, keep=True),
    row("_adaptive_avg_pool2d.default", _adaptive, even_windows),
)
