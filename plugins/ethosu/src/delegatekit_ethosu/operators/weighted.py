"""Products with constant weights: linear layers and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import torch

from delegatekit_api import argument
from delegatekit_toolkit.tosa import Conv2d, DepthwiseConv2d, DType, Operator, Pad, Tensor, TransposeConv2d
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Builder, Emitter, Lowering, Result, Scale
from ..ir.values import CHANNELS_LAST, ROWS_OF_CHANNELS, Value
from ..limits import KERNEL, MAX_AXIS, MAX_STRIDE, trailing_pads

if TYPE_CHECKING:
    from torch.fx import Node

#: Makes a tensor of sums (int32, of int16 int48) and of what one of them stands for in each channel.
Finish = Callable[[Tensor, Sequence[float]], Tensor]

#: Types of activations -> those of sums, and the largest bias: sums and bias stay within the NPU's 32 and 40 bits.
_SUMS: Final = {DType.INT8: DType.INT32, DType.INT16: DType.INT48}
_LARGEST_BIAS: Final = {DType.INT8: 1 << 30, DType.INT16: 1 << 38}


def _weight(b: Lowering, node: Node, channels: int) -> tuple[Array, Array]:
    """The integers of a weight and the scale of each of its `channels` output channels."""
    found = b.quantization(node)
    data = b.view_of_program.constant(node.args[0])
    assert data is not None
    scale = found.scale
    scales = scale.detach().double().numpy() if isinstance(scale, torch.Tensor) else np.array([float(scale)])
    return data.detach().numpy(), np.broadcast_to(scales, (channels,)).copy()


def _bias(numbers: Array | None, scales: Array, weight: Array, dtype: DType) -> tuple[Array, Array, Array]:
    """The bias in steps of `scales` (input times weight), the scales and the weight; `dtype` is the input's.

    Where the steps are too small for a bias, the channel's are made larger and its weights smaller: the bias is then so
    much larger than the products that this changes nothing.
    """
    if numbers is None:
        return np.zeros(1, np.int64), scales, weight
    numbers = np.broadcast_to(numbers.reshape(-1), scales.shape)
    coarser = np.maximum(1.0, np.abs(numbers) / scales / _LARGEST_BIAS[dtype])
    if (coarser > 1).any():
        weight = np.rint(weight / coarser.reshape(-1, *[1] * (weight.ndim - 1))).astype(weight.dtype)
        scales = scales * coarser
    return np.rint(numbers / scales).astype(np.int64), scales, weight


def _linear(b: Lowering, node: Node, result: Result) -> Value:
    x, weight = argument(node, "input"), argument(node, "weight")
    data, scales = _weight(b, weight, weight.meta["val"].shape[0])
    return rows(b, b.integers(x), b.scale(x), data, scales, b.numbers(argument(node, "bias")), result)


def _addmm(b: Lowering, node: Node, result: Result) -> Value:
    """The same with a weight that is stored the other way round, (I, O)."""
    x, weight = argument(node, "mat1"), argument(node, "mat2")
    data, scales = _weight(b, weight, weight.meta["val"].shape[1])
    return rows(b, b.integers(x), b.scale(x), data.T, scales, b.numbers(argument(node, "self")), result)


def rows(b: Lowering, x: Value, before: Scale, data: Array, scales: Array, bias: Array | None, result: Result) -> Value:
    """x (..., I) @ weight (O, I)^T + bias (O): a convolution of one pixel, with the rows along its width."""
    *outer, inputs = x.shape
    count = int(np.prod(outer, dtype=np.int64))
    flat = b.reshaped(b.contiguous(x), (1, 1, count, inputs))
    sums, steps = pointwise(b, flat, before, data, scales, bias)
    made = b.stored_as(sums, steps, result)
    return Value.dense(b.reshaped(made, (*outer, len(scales))))


def pointwise(
    b: Builder, x: Tensor, before: Scale, weight: Array, scales: Array, bias: Array | None
) -> tuple[Tensor, list[float]]:
    """x (N, H, W, I) times weight (O, I), as sums and what one of them stands for in each channel."""
    numbers, steps, weight = _bias(bias, scales * before.scale, weight, before.dtype)
    filters = b.graph.constant(weight.reshape(weight.shape[0], 1, 1, -1), DType.INT8, f"{b.name}.weight")
    shape = (*x.shape[:3], weight.shape[0])
    operands = (x, filters, *_rest(b, numbers, before))
    sums = _SUMS[before.dtype]
    made = b.emit(Conv2d(acc_type=sums), operands, shape, sums, "sums")
    return b.bound(made, _largest(weight, numbers)), [float(step) for step in steps]


def _largest(weight: Array, bias: Array) -> Array:
    """How large sums of int8 with weight (O, ...) can be in each channel."""
    products: Array = np.abs(weight.reshape(len(weight), -1).astype(np.float64)).sum(1)
    found: Array = 255 * products + np.abs(bias)
    return found


def _rest(b: Builder, bias: Array, before: Scale) -> tuple[Tensor, ...]:
    """The further operands of a convolution: bias and zero points."""
    return (
        b.graph.constant(bias, _SUMS[before.dtype], f"{b.name}.bias"),
        b.number(before.zero_point, before.dtype),
        b.number(0),
    )


def _convolution(b: Lowering, node: Node, result: Result) -> Value:
    source, weight = argument(node, "input"), argument(node, "weight")
    flat = len(source.meta["val"].shape) == 3
    stride, padding, dilation = (_pair(argument(node, name)) for name in ("stride", "padding", "dilation"))
    if flat:
        stride, padding, dilation = (1, stride[1]), (0, padding[1]), (1, dilation[1])
    x, before = _image(b, b.integers(source), flat), b.scale(source)
    groups, sizes = argument(node, "groups"), _pair((1, *node.meta["val"].shape[2:])[-2:])
    data, scales = _weight(b, weight, node.meta["val"].shape[1])
    if flat:
        data = data[:, :, None]
    bias = b.numbers(argument(node, "bias"))

    def finish(sums: Tensor, steps: Sequence[float]) -> Tensor:
        return b.stored_as(sums, steps, result)

    if argument(node, "transposed"):
        made = _transposed(b, x, before, data, scales, bias, stride, padding, groups, sizes, finish)
    elif max(stride) > MAX_STRIDE and groups == 1 and dilation == (1, 1):
        made = _strided(b, x, before, data, scales, bias, stride, padding, sizes, finish)
    else:
        possible, further, counts = possible_strides(stride, sizes)
        x, padding = _unpadded(b, x, before, data.shape[2:], possible, padding, dilation, counts)
        x, pads = fitted_pads(b, x, data.shape[2:], possible, padding, dilation, counts)
        x, pads = _within_reach(b, x, before, data.shape[2:], dilation, pads)
        made = convolved(b, x, before, data, scales, bias, possible, pads, dilation, groups, counts, finish)
        made = thinned(b, made, further)
    if flat:
        return Value(b.reshaped(made, (made.shape[0], *made.shape[2:])), ROWS_OF_CHANNELS)
    return Value(made, CHANNELS_LAST)


def _pair(setting: Sequence[int]) -> tuple[int, int]:
    first, *rest = setting
    return first, rest[0] if rest else first


def _image(b: Lowering, x: Value, flat: bool) -> Tensor:
    """(N, C, H, W), or (N, C, L) as an image of one row, with the channels last."""
    if not flat:
        return b.stored(x, CHANNELS_LAST)
    made = b.stored(x, ROWS_OF_CHANNELS)
    return b.reshaped(made, (made.shape[0], 1, *made.shape[1:]))


def _unpadded(
    b: Lowering,
    x: Tensor,
    before: Scale,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: tuple[int, int],
    dilation: Sequence[int],
    sizes: Sequence[int],
) -> tuple[Tensor, tuple[int, int]]:
    """The input of a pad in front of a convolution, which pads by itself: in front of rows and columns as told, and
    behind them as its windows need. The pad stays if no window reads more than what it adds."""
    made = b.producer(x)
    if made is None or not isinstance(made.operator, Pad):
        return x, padding
    source, amounts, filler = made.inputs
    assert amounts.data is not None and filler.data is not None
    batch, _, top, bottom, left, right, *channels = (int(amount) for amount in amounts.data)
    if filler.data[0] != before.zero_point or any((batch, amounts.data[1], *channels)):
        return x, padding
    del bottom, right
    wider = padding[0] + top, padding[1] + left
    after = trailing_pads(source.shape[1:3], sizes, kernel, stride, wider, dilation)
    if any(size + more <= 0 for size, more in zip(source.shape[1:3], after, strict=True)):
        return x, padding
    return source, wider


def possible_strides(
    stride: Sequence[int], sizes: tuple[int, int]
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Strides that the NPU has, and what is left of larger ones; sizes of the result of the first.

    Along an axis with one window a stride is never made.
    """
    needed = [1 if size == 1 else step for step, size in zip(stride, sizes, strict=True)]
    high, wide = (next(step for step in range(MAX_STRIDE, 0, -1) if want % step == 0) for want in needed)
    more_high, more_wide = needed[0] // high, needed[1] // wide
    counts = (sizes[0] - 1) * more_high + 1, (sizes[1] - 1) * more_wide + 1
    return (high, wide), (more_high, more_wide), counts


def thinned(b: Lowering, x: Tensor, steps: tuple[int, int]) -> Tensor:
    """Every `steps`-th row and column of (N, H, W, C), the first and the last among them."""
    for axis, step in zip((1, 2), steps, strict=True):
        if step == 1:
            continue
        rows = (x.shape[axis] - 1) // step
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        cut = b.reshaped(b.sliced(x, (0, 0, 0, 0), (*before, rows * step, *behind)), (*before, rows, step, *behind))
        first = b.reshaped(b.sliced(cut, [0] * 5, (*before, rows, 1, *behind)), (*before, rows, *behind))
        start = [rows * step if place == axis else 0 for place in range(4)]
        last = b.sliced(x, start, (*before, 1, *behind))
        x = b.joined((first, last), axis, "thinned")
    return x


def fitted_pads(
    b: Lowering,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    sizes: Sequence[int],
) -> tuple[Tensor, tuple[int, int, int, int]]:
    """The input without rows and columns that no window reads, and the padding with which the last windows end."""
    after = trailing_pads(x.shape[1:3], sizes, kernel, stride, padding, dilation)
    kept = [size + min(0, more) for size, more in zip(x.shape[1:3], after, strict=True)]
    x = b.sliced(x, (0, 0, 0, 0), (x.shape[0], *kept, x.shape[3]))
    (top, left), (bottom, right) = padding, (max(0, more) for more in after)
    return x, (top, bottom, left, right)


def _within_reach(
    b: Lowering,
    x: Tensor,
    before: Scale,
    kernel: Sequence[int],
    dilation: Sequence[int],
    pads: tuple[int, int, int, int],
) -> tuple[Tensor, tuple[int, int, int, int]]:
    """Padding with which no window is outside the input: no NPU's manual tells of such. The rest is padded before."""
    high, wide = (gap * (size - 1) for gap, size in zip(dilation, kernel, strict=True))
    top, bottom, left, right = (max(0, pad - reach) for pad, reach in zip(pads, (high, high, wide, wide), strict=True))
    x = _padded(b, x, before, (top, bottom, left, right))
    return x, (pads[0] - top, pads[1] - bottom, pads[2] - left, pads[3] - right)


def _padded(b: Lowering, x: Tensor, before: Scale, pads: tuple[int, int, int, int]) -> Tensor:
    """(N, H, W, C) with zeros around: so many rows above and below, and columns left and right."""
    if not any(pads):
        return x
    top, bottom, left, right = pads
    shape = (x.shape[0], top + x.shape[1] + bottom, left + x.shape[2] + right, x.shape[3])
    operands = (x, b.sizes((0, 0, *pads, 0, 0)), b.number(before.zero_point, before.dtype))
    return b.emit(Pad(), operands, shape, x.dtype, "pad")


def convolved(
    b: Builder,
    x: Tensor,
    before: Scale,
    weight: Array,
    scales: Array,
    bias: Array | None,
    stride: Sequence[int],
    pads: tuple[int, int, int, int],
    dilation: Sequence[int],
    groups: int,
    sizes: Sequence[int],
    finish: Finish,
) -> Tensor:
    """x (N, H, W, C) with weight (O, C / groups, KH, KW); `finish` makes the result of the sums of each group."""
    one_pixel = (*weight.shape[2:], *stride, *pads) == (1, 1, 1, 1, 0, 0, 0, 0)
    if one_pixel and x.shape[0] > 1 and x.shape[0] * x.shape[1] <= MAX_AXIS:
        joined = _one_sample(b, x)
        sizes = joined.shape[1:3]
        made = convolved(b, joined, before, weight, scales, bias, stride, pads, dilation, groups, sizes, finish)
        return b.reshaped(made, (*x.shape[:3], made.shape[3]))
    numbers, steps, weight = _bias(bias, scales * before.scale, weight, before.dtype)
    sums = _SUMS[before.dtype]
    settings = {"pad": pads, "stride": tuple(stride), "dilation": tuple(dilation), "acc_type": sums}
    if groups == x.shape[3] and groups > 1 and weight.shape[0] > groups:
        # Several kernels for a channel: each gets a channel of its own. Vela (5.1) would sort the results one by one.
        copies = np.repeat(np.eye(groups, dtype=np.int8), weight.shape[0] // groups, axis=0)
        copied, _ = pointwise(b, x, before, copies, np.ones(1), None)
        x = b.rescaled(copied, [1.0], output_zero=before.zero_point, dtype=before.dtype, name="repeated")
        groups = weight.shape[0]
    if groups == x.shape[3] and groups > 1:
        kernels = weight.reshape(groups, -1, *weight.shape[2:]).transpose(2, 3, 0, 1)
        filters = b.graph.constant(kernels, DType.INT8, f"{b.name}.weight")
        operands = (x, filters, *_rest(b, numbers, before))
        shape = (x.shape[0], *sizes, weight.shape[0])
        operator = DepthwiseConv2d(**settings)  # type: ignore[arg-type]
        made = b.emit(operator, operands, shape, sums, "sums")
        return finish(b.bound(made, _largest(weight, numbers)), list(steps))
    return _grouped(b, x, before, weight, numbers, steps, Conv2d(**settings), groups, sizes, finish)  # type: ignore[arg-type]


def _one_sample(b: Builder, x: Tensor) -> Tensor:
    """(N, H, W, C) as rows of one sample, for a convolution of one pixel.

    Vela (5.1) loses the padding, and moves, of what reads several samples behind such a convolution.
    """
    return b.reshaped(x, (1, x.shape[0] * x.shape[1], *x.shape[2:]))


def _grouped(
    b: Builder,
    x: Tensor,
    before: Scale,
    weight: Array,
    bias: Array,
    steps: Array,
    operator: Operator,
    groups: int,
    sizes: Sequence[int],
    finish: Finish,
) -> Tensor:
    """One convolution for each group of channels, with weight (O, C / groups, KH, KW), and the results side by side."""
    each, count = x.shape[3] // groups, weight.shape[0] // groups
    parts = []
    for group in range(groups):
        own = slice(group * count, (group + 1) * count)
        filters = b.graph.constant(weight[own].transpose(0, 2, 3, 1), DType.INT8, f"{b.name}.weight")
        part = b.sliced(x, (0, 0, 0, group * each), (*x.shape[:3], each))
        numbers = bias[own] if len(bias) > 1 else bias
        operands = (part, filters, *_rest(b, numbers, before))
        sums = b.emit(operator, operands, (x.shape[0], *sizes, count), _SUMS[before.dtype], "sums")
        parts.append(finish(b.bound(sums, _largest(weight[own], numbers)), list(steps[own])))
    return b.joined(parts, 3, "groups")


def _strided(
    b: Lowering,
    x: Tensor,
    before: Scale,
    weight: Array,
    scales: Array,
    bias: Array | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    sizes: tuple[int, int],
    finish: Finish,
) -> Tensor:
    """Strides that the NPU does not have: pixels of a stride become channels, and the stride 1."""
    outputs, inputs = weight.shape[:2]
    blocks = [-(-size // step) for size, step in zip(weight.shape[2:], stride, strict=True)]
    room = [(count + more - 1) * step for count, more, step in zip(sizes, blocks, stride, strict=True)]
    kept = [min(size, most - pad) for size, most, pad in zip(x.shape[1:3], room, padding, strict=True)]
    x = b.sliced(x, (0, 0, 0, 0), (x.shape[0], *kept, x.shape[3]))
    behind = [want - size - pad for want, size, pad in zip(room, x.shape[1:3], padding, strict=True)]
    x = _padded(b, x, before, (padding[0], behind[0], padding[1], behind[1]))
    batch, (high, wide) = x.shape[0], (size // step for size, step in zip(room, stride, strict=True))
    x = b.reshaped(x, (batch, high, stride[0], wide, stride[1], inputs))
    x = b.transposed(x, (0, 1, 3, 2, 4, 5))
    x = b.reshaped(x, (batch, high, wide, stride[0] * stride[1] * inputs))
    whole = np.zeros((outputs, inputs, blocks[0] * stride[0], blocks[1] * stride[1]), weight.dtype)
    whole[:, :, : weight.shape[2], : weight.shape[3]] = weight
    cut = whole.reshape(outputs, inputs, blocks[0], stride[0], blocks[1], stride[1]).transpose(0, 3, 5, 1, 2, 4)
    weight = cut.reshape(outputs, -1, *blocks)
    return convolved(b, x, before, weight, scales, bias, (1, 1), (0, 0, 0, 0), (1, 1), 1, sizes, finish)


def _transposed(
    b: Lowering,
    x: Tensor,
    before: Scale,
    weight: Array,
    scales: Array,
    bias: Array | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
    sizes: tuple[int, int],
    finish: Finish,
) -> Tensor:
    """x (N, H, W, C) with weight (C, O / groups, KH, KW)."""
    inputs, count, *kernel = weight.shape
    each = inputs // groups
    weight = weight.reshape(groups, each, count, *kernel).swapaxes(1, 2).reshape(groups * count, each, *kernel)
    numbers, steps, weight = _bias(bias, scales * before.scale, weight, before.dtype)
    own = (1, 2) if x.shape[1] == 1 else (2, 2)
    # (Vela refuses a stride that makes one column.)
    strange = stride not in ((1, 1), own) or (stride[1] > 1 and sizes[1] == 1)
    if b.family != "u85" and (before.dtype == DType.INT16 or strange):
        return _phased(b, x, before, weight, numbers, steps, stride, padding, groups, sizes, finish)
    # What PyTorch pads, TOSA cuts off the result: less than the kernel adds. Of the rest the result is a block.
    first = [-min(pad, window - 1) for pad, window in zip(padding, kernel, strict=True)]
    last = [
        size - (length - 1) * step - window + pad
        for size, length, step, window, pad in zip(sizes, x.shape[1:3], stride, kernel, padding, strict=True)
    ]
    # Vela (5.1) puts rows behind the kernel's reach in the wrong places of a larger tensor: zeros make it reach them.
    longer = [max(0, end) if window < KERNEL[0] else 0 for end, window in zip(last, kernel, strict=True)]
    weight = np.pad(weight, ((0, 0), (0, 0), (0, longer[0]), (0, longer[1])))
    kernel = list(weight.shape[2:])
    last = [end - more for end, more in zip(last, longer, strict=True)]
    start = [pad + cut for pad, cut in zip(padding, first, strict=True)]
    room = [
        size + at + max(0, 1 - window - end) for size, at, window, end in zip(sizes, start, kernel, last, strict=True)
    ]
    (top, left), (bottom, right) = first, (max(end, 1 - window) for end, window in zip(last, kernel, strict=True))
    operator = TransposeConv2d((top, bottom, left, right), stride, acc_type=_SUMS[before.dtype])
    made = _grouped(b, x, before, weight, numbers, steps, operator, groups, room, finish)
    return b.sliced(made, (0, *start, 0), (made.shape[0], *sizes, made.shape[3]))


def _phased(
    b: Lowering,
    x: Tensor,
    before: Scale,
    weight: Array,
    bias: Array,
    steps: Array,
    stride: tuple[int, int],
    padding: tuple[int, int],
    groups: int,
    sizes: tuple[int, int],
    finish: Finish,
) -> Tensor:
    """A transposed convolution as a plain one, for what has no other: weight (O, C / groups, KH, KW).

    Of the rows and columns of a stride each reads its own part of the kernel: they are channels of the convolution
    first, and then become pixels.
    """
    each, count, phases = x.shape[3] // groups, weight.shape[0] // groups, stride[0] * stride[1]
    # So many steps of the stride does the kernel reach over, or the result behind the last pixel.
    reach = [
        max(-(-window // step), -(-(size + pad) // step) - length + 1)
        for window, size, pad, length, step in zip(weight.shape[2:], sizes, padding, x.shape[1:3], stride, strict=True)
    ]
    whole = np.zeros((weight.shape[0], each, reach[0] * stride[0], reach[1] * stride[1]), weight.dtype)
    whole[:, :, : weight.shape[2], : weight.shape[3]] = weight
    cut = whole.reshape(groups, count, each, reach[0], stride[0], reach[1], stride[1])[:, :, :, ::-1, :, ::-1]
    kernels = cut.transpose(0, 4, 6, 1, 2, 3, 5).reshape(groups, phases * count, each, *reach)
    (high, wide), parts = [size + more - 1 for size, more in zip(x.shape[1:3], reach, strict=True)], []
    operator = Conv2d((reach[0] - 1,) * 2 + (reach[1] - 1,) * 2, acc_type=_SUMS[before.dtype])
    batch, read = x.shape[0], (high, wide)
    if reach == [1, 1] and batch * high <= MAX_AXIS:
        x, read = _one_sample(b, x), (batch * high, wide)
    for group in range(groups):
        own = slice(group * count, (group + 1) * count)
        numbers = np.tile(bias[own], phases) if len(bias) > 1 else bias
        part = b.sliced(x, (0, 0, 0, group * each), (*x.shape[:3], each))
        made = _grouped(
            b, part, before, kernels[group], numbers, np.tile(steps[own], phases), operator, 1, read, finish
        )
        made = b.reshaped(made, (batch, high, wide, *stride, count))
        made = b.transposed(made, (0, 1, 3, 2, 4, 5))
        made = b.reshaped(made, (batch, high * stride[0], wide * stride[1], count))
        parts.append(b.sliced(made, (0, *padding, 0), (batch, *sizes, count)))
    return b.joined(parts, 3, "groups")


EMITTERS: dict[str, Emitter] = {
    "aten.linear.default": _linear,
    "aten.addmm.default": _addmm,
    "aten.convolution.default": _convolution,
}
