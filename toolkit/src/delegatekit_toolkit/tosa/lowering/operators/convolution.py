"""Convolutions with constant weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import starmap

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import Conv2d, DType, Pad, Tensor, TransposeConv2d

from ..filters import SUMS, Filters, Finish, Kernels, convolved, grouped, one_sample
from ..limits import KERNEL, MAX_AXIS, MAX_STRIDE, MAX_TRANSPOSED_STRIDE
from ..program import ProgramBuilder
from ..values import CHANNELS_LAST, ROWS_OF_CHANNELS, Result, Scale, Value
from ..windows import Pair, Windows, fitted, thinned
from .common import Rows, constant_weight, size_obstacle, weight_of


def convolution_obstacle(
    shape: Sequence[int],
    weight: Sequence[int],
    result: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
) -> str | None:
    """The reason for refusing a convolution of these shapes, (N, C, H, W); kernels include their dilation."""
    axes = len(weight) - 2
    if axes not in (1, 2):
        return f"a convolution over {axes} axes: the NPU supports one or two"
    extent = [step * (size - 1) + 1 for step, size in zip(dilation, weight[2:], strict=True)]
    axes_of = zip(shape[2:], result[2:], weight[2:], stride, dilation, padding, strict=False)
    if not all(starmap(_reads, axes_of)):
        return f"its windows read nothing but padding {tuple(padding)}"
    return size_obstacle(extent, KERNEL, "kernel")


def _reads(size: int, count: int, window: int, step: int, gap: int, pad: int) -> bool:
    """True if any window along an axis reads more than padding."""
    return any(0 <= at * step + tap * gap - pad < size for at in range(count) for tap in range(window))


def transposed_obstacle(weight: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> str | None:
    """The reason for refusing a transposed convolution with a weight (C, O / groups, H, W)."""
    axes = len(weight) - 2
    if axes not in (1, 2):
        return f"a convolution over {axes} axes: the NPU supports one or two"
    if max(dilation) > 1:
        return f"a transposed convolution with dilation {tuple(dilation)}"
    if max(stride) > MAX_TRANSPOSED_STRIDE:
        return f"a transposed convolution with stride {tuple(stride)}: {MAX_TRANSPOSED_STRIDE} is the maximum"
    return size_obstacle(weight[2:], KERNEL, "kernel")


def convolves(call: Call) -> str | None:
    """1-d or 2-d; kernels to 64 high and of 4096 elements; transposed: no dilation."""
    weight, stride, dilation = call["weight"].shape, call["stride"], call["dilation"]
    if call["transposed"]:
        return transposed_obstacle(weight, stride, dilation)
    return convolution_obstacle(call["input"].shape, weight, call.result.shape, stride, dilation, call["padding"])


def _convolution(b: ProgramBuilder, call: Call, result: Result) -> Value:
    source, flat = call["input"], call["input"].rank == 3
    x, before = _image(b, b.integers(source), flat), b.scale(source)
    data, scales = weight_of(b, call["weight"], call.result.shape[1])
    filters = Filters(data[:, :, None] if flat else data, scales, b.numbers(call["bias"]), call["groups"])
    windows = _windows(call, filters)

    def finish(sums: Tensor, steps: Sequence[float]) -> Tensor:
        return b.stored_as(sums, steps, result)

    if call["transposed"]:
        made = _transposed(b, x, before, filters, windows, finish)
    elif max(windows.stride) > MAX_STRIDE and filters.groups == 1 and windows.dilation == (1, 1):
        made = _strided(b, x, before, filters, windows, finish)
    else:
        possible, further = windows.possible()
        x, possible = _unpadded(b, x, before, possible)
        x, possible = fitted(b, x, possible)
        x, possible = _within_reach(b, x, before, possible)
        made = thinned(b, convolved(b, x, before, filters, possible, finish), further)
    if flat:
        return Value(b.reshaped(made, (made.shape[0], *made.shape[2:])), ROWS_OF_CHANNELS)
    return Value(made, CHANNELS_LAST)


def _windows(call: Call, filters: Filters) -> Windows:
    """The windows of a convolution, along one row for (N, C, L)."""
    high, wide = filters.weight.shape[2:]
    stride, padding, dilation = (_pair(call[name]) for name in ("stride", "padding", "dilation"))
    if call["input"].rank == 3:
        stride, padding, dilation = (1, stride[1]), (0, padding[1]), (1, dilation[1])
    sizes = _pair((1, *call.result.shape[2:])[-2:])
    return Windows((high, wide), sizes, stride, dilation=dilation).padded(padding, padding)


def _pair(setting: Sequence[int]) -> Pair:
    first, *rest = setting
    return first, rest[0] if rest else first


def _image(b: ProgramBuilder, x: Value, flat: bool) -> Tensor:
    """(N, C, H, W), or (N, C, L) as an image of one row, with the channels last."""
    if not flat:
        return b.stored(x, CHANNELS_LAST)
    made = b.stored(x, ROWS_OF_CHANNELS)
    return b.reshaped(made, (made.shape[0], 1, *made.shape[1:]))


# -- padding ---------------------------------------------------------------------------------------------------------


def _unpadded(b: ProgramBuilder, x: Tensor, before: Scale, windows: Windows) -> tuple[Tensor, Windows]:
    """The input of a pad before a convolution, which pads by itself.

    It pads before rows and columns as requested, and after them as its windows need. The pad stays if no window reads
    more than what it adds.
    """
    made = b.producer(x)
    if made is None or not isinstance(made.operator, Pad):
        return x, windows
    source, amounts, filler = made.inputs
    assert amounts.data is not None and filler.data is not None
    batch, more_batches, top, _, left, _, *channels = (int(amount) for amount in amounts.data)
    if filler.data[0] != before.zero_point or any((batch, more_batches, *channels)):
        return x, windows
    wider = windows.padding[0] + top, windows.padding[1] + left
    wide = windows.padded(wider, wider)
    after = wide.trailing(source.shape[1:3])
    if any(size + more <= 0 for size, more in zip(source.shape[1:3], after, strict=True)):
        return x, windows
    return source, wide


def _within_reach(b: ProgramBuilder, x: Tensor, before: Scale, windows: Windows) -> tuple[Tensor, Windows]:
    """Padding with which no window is outside the input: no NPU manual covers such. The rest is padded before."""
    high, wide = (gap * (size - 1) for gap, size in zip(windows.dilation, windows.kernel, strict=True))
    pads = windows.pads
    top, bottom, left, right = (max(0, pad - reach) for pad, reach in zip(pads, (high, high, wide, wide), strict=True))
    x = _padded(b, x, before, (top, bottom, left, right))
    return x, replace(windows, pads=(pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right))


def _padded(b: ProgramBuilder, x: Tensor, before: Scale, pads: tuple[int, int, int, int]) -> Tensor:
    """(N, H, W, C) surrounded by zeros: this many rows above and below, and columns left and right."""
    if not any(pads):
        return x
    top, bottom, left, right = pads
    shape = (x.shape[0], top + x.shape[1] + bottom, left + x.shape[2] + right, x.shape[3])
    operands = (x, b.sizes((0, 0, *pads, 0, 0)), b.number(before.zero_point, before.dtype))
    return b.emit(Pad(), operands, shape, x.dtype, "pad")


# -- strides ---------------------------------------------------------------------------------------------------------


def _strided(b: ProgramBuilder, x: Tensor, before: Scale, filters: Filters, windows: Windows, finish: Finish) -> Tensor:
    """Strides that the NPU lacks: pixels of a stride become channels, and the stride 1."""
    weight, stride, padding = filters.weight, windows.stride, windows.padding
    outputs, inputs = weight.shape[:2]
    blocks = [-(-size // step) for size, step in zip(weight.shape[2:], stride, strict=True)]
    room = [(count + more - 1) * step for count, more, step in zip(windows.sizes, blocks, stride, strict=True)]
    kept = [min(size, most - pad) for size, most, pad in zip(x.shape[1:3], room, padding, strict=True)]
    x = b.sliced(x, (0, 0, 0, 0), (x.shape[0], *kept, x.shape[3]))
    after = [want - size - pad for want, size, pad in zip(room, x.shape[1:3], padding, strict=True)]
    x = _padded(b, x, before, (padding[0], after[0], padding[1], after[1]))
    batch, (high, wide) = x.shape[0], (size // step for size, step in zip(room, stride, strict=True))
    x = b.reshaped(x, (batch, high, stride[0], wide, stride[1], inputs))
    x = b.transposed(x, (0, 1, 3, 2, 4, 5))
    x = b.reshaped(x, (batch, high, wide, stride[0] * stride[1] * inputs))
    whole = np.zeros((outputs, inputs, blocks[0] * stride[0], blocks[1] * stride[1]), weight.dtype)
    whole[:, :, : weight.shape[2], : weight.shape[3]] = weight
    cut = whole.reshape(outputs, inputs, blocks[0], stride[0], blocks[1], stride[1]).transpose(0, 3, 5, 1, 2, 4)
    plain = replace(filters, weight=cut.reshape(outputs, -1, *blocks))
    return convolved(b, x, before, plain, Windows((blocks[0], blocks[1]), windows.sizes), finish)


def _transposed(
    b: ProgramBuilder, x: Tensor, before: Scale, filters: Filters, windows: Windows, finish: Finish
) -> Tensor:
    """x (N, H, W, C) with weight (C, O / groups, KH, KW)."""
    groups, (inputs, count, *kernel) = filters.groups, filters.weight.shape
    each, (stride, padding, sizes) = inputs // groups, (windows.stride, windows.padding, windows.sizes)
    weight = filters.weight.reshape(groups, each, count, *kernel).swapaxes(1, 2)
    kernels = replace(filters, weight=weight.reshape(groups * count, each, *kernel)).kernels(before)
    # (Some compilers refuse a stride that makes one column, and one along rows alone that reads or makes several.)
    own = (1, 2) if x.shape[1] == kernel[0] == 1 else (2, 2)
    strange = stride not in ((1, 1), own) or (stride[1] > 1 and sizes[1] == 1)
    if b.device.narrow and (before.dtype == DType.INT16 or strange):
        return _phased(b, x, before, kernels, windows, finish)
    # PyTorch's padding is cropped from TOSA's result: less than the kernel adds. The result is a block of the rest.
    first = [-min(pad, window - 1) for pad, window in zip(padding, kernel, strict=True)]
    last = [
        size - (length - 1) * step - window + pad
        for size, length, step, window, pad in zip(sizes, x.shape[1:3], stride, kernel, padding, strict=True)
    ]
    # A compiler in use misplaces rows beyond the kernel's reach in a larger tensor: zeros extend the kernel to them.
    longer = [max(0, end) if window < KERNEL[0] else 0 for end, window in zip(last, kernel, strict=True)]
    kernels = replace(kernels, weight=np.pad(kernels.weight, ((0, 0), (0, 0), (0, longer[0]), (0, longer[1]))))
    reach = kernels.weight.shape[2:]
    last = [end - more for end, more in zip(last, longer, strict=True)]
    start = [pad + cut for pad, cut in zip(padding, first, strict=True)]
    high, wide = (
        size + at + max(0, 1 - window - end) for size, at, window, end in zip(sizes, start, reach, last, strict=True)
    )
    (top, left), (bottom, right) = first, (max(end, 1 - window) for end, window in zip(last, reach, strict=True))
    operator = TransposeConv2d((top, bottom, left, right), stride, acc_type=SUMS[before.dtype])
    made = grouped(b, x, before, kernels, operator, (high, wide), finish)
    return b.sliced(made, (0, *start, 0), (made.shape[0], *sizes, made.shape[3]))


def _phased(b: ProgramBuilder, x: Tensor, before: Scale, kernels: Kernels, windows: Windows, finish: Finish) -> Tensor:
    """A transposed convolution as a plain one, if TOSA's is not possible: weight (O, C / groups, KH, KW).

    Each of the rows and columns of a stride reads its own part of the kernel: they are channels of the convolution
    first, and then become pixels.
    """
    weight, stride, padding, sizes = kernels.weight, windows.stride, windows.padding, windows.sizes
    groups, phases = kernels.groups, stride[0] * stride[1]
    each, count = x.shape[3] // groups, weight.shape[0] // groups
    # The number of stride steps that the kernel spans, or that the result extends beyond the last pixel.
    reach = [
        max(-(-window // step), -(-(size + pad) // step) - length + 1)
        for window, size, pad, length, step in zip(weight.shape[2:], sizes, padding, x.shape[1:3], stride, strict=True)
    ]
    whole = np.zeros((weight.shape[0], each, reach[0] * stride[0], reach[1] * stride[1]), weight.dtype)
    whole[:, :, : weight.shape[2], : weight.shape[3]] = weight
    cut = whole.reshape(groups, count, each, reach[0], stride[0], reach[1], stride[1])[:, :, :, ::-1, :, ::-1]
    cut = cut.transpose(0, 4, 6, 1, 2, 3, 5).reshape(groups, phases * count, each, *reach)
    (high, wide), parts = [size + more - 1 for size, more in zip(x.shape[1:3], reach, strict=True)], []
    operator = Conv2d((reach[0] - 1,) * 2 + (reach[1] - 1,) * 2, acc_type=SUMS[before.dtype])
    batch, read = x.shape[0], (high, wide)
    if reach == [1, 1] and batch * high <= MAX_AXIS:
        x, read = one_sample(b, x), (batch * high, wide)
    for group in range(groups):
        own = kernels.part(slice(group * count, (group + 1) * count))
        bias = np.tile(own.bias, phases) if len(kernels.bias) > 1 else own.bias
        plain = Kernels(cut[group], bias, np.tile(own.steps, phases))
        part = b.sliced(x, (0, 0, 0, group * each), (*x.shape[:3], each))
        made = grouped(b, part, before, plain, operator, read, finish)
        made = b.reshaped(made, (batch, high, wide, *stride, count))
        made = b.transposed(made, (0, 1, 3, 2, 4, 5))
        made = b.reshaped(made, (batch, high * stride[0], wide * stride[1], count))
        parts.append(b.sliced(made, (0, *padding, 0), (batch, *sizes, count)))
    return b.joined(parts, 3, "groups")


ROWS: Rows = (
    row(
        "convolution.default",
        _convolution,
        constant_weight("weight", "bias"),
        convolves,
        constants=("weight", "bias"),
    ),
)
