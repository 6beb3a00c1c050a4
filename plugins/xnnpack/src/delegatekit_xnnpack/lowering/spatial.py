"""Operators on feature maps: convolution, pooling, resizing. All work in NHWC; one-dimensional ones with height 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from delegatekit_toolkit.sizes import dynamic_count, largest

from .. import operators as ops
from ..arguments import argument, per_axis, rank_of, shape_of
from ..formats import numbers
from ..graph import DataType, Format, PerChannelQuantization, PerRowQuantization, Value, static
from ..layout import Tensor
from ..operators import ConvolutionKind, Padding, PoolKind
from .context import Lowering, ProgramBuilder
from .elementwise import expand
from .shape import chosen

if TYPE_CHECKING:
    from torch.fx import Node

#: (height, width)
Pair = tuple[int, int]


def _as_pair(setting: Sequence[int], one: int) -> Pair:
    """A setting of each spatial axis as (height, width); a one-dimensional operator has height `one`."""
    return (one, setting[0]) if len(setting) == 1 else (setting[0], setting[1])


def _as_feature_map(b: ProgramBuilder, x: Tensor, spatial: int) -> Tensor:
    """x (N, C, spatial...) or (C, spatial...) as (N, C, H, W)."""
    shape = x.shape if len(x.shape) == spatial + 2 else (1, *x.shape)
    return b.reshape(x, shape if spatial == 2 else (*shape[:2], 1, shape[2]))


# -- convolution -----------------------------------------------------------------------------------------------------


def _convolution(b: ProgramBuilder, node: Node) -> Tensor:
    source, filter_node = argument(node, "input"), argument(node, "weight")
    weight, format = b.filter(filter_node)
    if weight.dim() == 3:
        weight = weight.unsqueeze(2)
    groups, transposed = argument(node, "groups"), argument(node, "transposed")
    kernel = (weight.shape[2], weight.shape[3])
    inputs = largest(shape_of(source)[1])
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    kind = _convolution_kind(groups, inputs, transposed=transposed)
    operator = ops.Convolution(
        kind,
        padding=_symmetric(_as_pair(argument(node, "padding"), 0)),
        kernel=kernel,
        stride=_as_pair(argument(node, "stride"), 1),
        dilation=_as_pair(argument(node, "dilation"), 1),
        groups=groups,
        group_inputs=inputs // groups,
        group_outputs=outputs // groups,
        adjustment=_as_pair(argument(node, "output_padding"), 0) if transposed else (0, 0),
    )
    x = b.nhwc(_as_feature_map(b, b.tensor(source), rank_of(source) - 2))
    operands = [x, _filter(b, weight, format, operator)]
    bias = argument(node, "bias")
    if bias is not None:
        operands.append(b.dense(b.tensor(bias)))
    if x.quantization == PerRowQuantization(1):
        # XNNPACK would make this of the convolution, too.
        operands[1] = b.reshaped(operands[1], (outputs, inputs))
        return b.reshape(b.from_nhwc(b.emit(ops.FullyConnected(), *operands)), shape_of(node))
    return b.reshape(b.from_nhwc(b.emit(operator, *operands)), shape_of(node))


def _convolution_kind(groups: int, inputs: int, *, transposed: bool) -> ConvolutionKind:
    if transposed:
        return ConvolutionKind.TRANSPOSED
    return ConvolutionKind.DEPTHWISE if groups == inputs > 1 else ConvolutionKind.REGULAR


def _filter(b: ProgramBuilder, weight: torch.Tensor, format: Format, operator: ops.Convolution) -> Value:
    """The weight in the layout that XNNPACK wants, as a view of it: the file writer makes it dense."""
    height, width = operator.kernel
    outputs = operator.groups * operator.group_outputs
    quantization = format.quantization
    if isinstance(quantization, PerChannelQuantization):
        # XNNPACK wants a scale for each channel of the result.
        if quantization.axis != (operator.kind is ConvolutionKind.TRANSPOSED):
            weight, format = numbers(Value(tuple(weight.shape), format.datatype, weight, quantization)), Format()
        else:
            scales = quantization.scales
            if operator.kind is ConvolutionKind.TRANSPOSED and operator.groups > 1:
                scales = scales.repeat(operator.groups)  # PyTorch's axis has the channels of one group
            axis = 3 if operator.kind is ConvolutionKind.DEPTHWISE else 0
            format = Format(DataType.QCINT8, PerChannelQuantization(scales, axis))
    if operator.kind is ConvolutionKind.DEPTHWISE:
        return b.constant(weight.permute(1, 2, 3, 0), (1, height, width, outputs), format)
    shape = (outputs, height, width, operator.group_inputs)
    if operator.kind is ConvolutionKind.TRANSPOSED:
        # (I, O/g, kh, kw), its inputs grouped, becomes (g, O/g, kh, kw, I/g).
        weight = weight.reshape(operator.groups, operator.group_inputs, operator.group_outputs, height, width)
        return b.constant(weight.permute(0, 2, 3, 4, 1), shape, format)
    return b.constant(weight.permute(0, 2, 3, 1), shape, format)


def _symmetric(padding: Pair) -> Padding:
    return Padding(top=padding[0], right=padding[1], bottom=padding[0], left=padding[1])


# -- pooling ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolWindow:
    """The arguments of a pooling operator, each as (height, width)."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    #: Rows and columns beyond the padding that the last windows of ceil_mode reach into.
    overhang: Pair


def pool_window(node: Node, spatial: int) -> PoolWindow:
    """The window of a max_pool or avg_pool call with `spatial` axes."""
    kernel = _as_pair(per_axis(argument(node, "kernel_size"), spatial), 1)
    strides = per_axis(argument(node, "stride"), spatial, default=0)
    stride = _as_pair(strides, 1) if any(strides) else kernel
    padding = _as_pair(per_axis(argument(node, "padding"), spatial), 0)
    has_dilation = "max_pool" in str(node.target)
    dilation = _as_pair(per_axis(argument(node, "dilation"), spatial), 1) if has_dilation else (1, 1)
    overhang = [0, 0]
    if argument(node, "ceil_mode"):
        size = _as_pair(static(shape_of(argument(node, "self"))[-spatial:]), 1)
        result = _as_pair(static(shape_of(node)[-spatial:]), 1)
        overhang = [
            max(0, (result[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - size[i] - 2 * padding[i])
            for i in (0, 1)
        ]
    return PoolWindow(kernel, stride, padding, dilation, (overhang[0], overhang[1]))


def _max_pool(spatial: int) -> Lowering:
    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        window = pool_window(node, spatial)
        padding = _symmetric(window.padding) + Padding(bottom=window.overhang[0], right=window.overhang[1])
        operator = ops.Pool(PoolKind.MAXIMUM, padding, window.kernel, window.stride, window.dilation)
        x = _as_feature_map(b, b.tensor(argument(node, "self")), spatial)
        return b.reshape(b.from_nhwc(b.emit(operator, b.nhwc(x))), shape_of(node))

    return lower


def _average_pool(spatial: int) -> Lowering:
    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        window = pool_window(node, spatial)
        x = _as_feature_map(b, b.tensor(argument(node, "self")), spatial)
        if x.shape[2:] == window.kernel and not any(window.padding) and not any(window.overhang):
            return b.reshape(b.from_nhwc(b.emit(ops.GlobalAveragePool(), b.nhwc(x))), shape_of(node))
        padding = Padding(bottom=window.overhang[0], right=window.overhang[1])
        if argument(node, "count_include_pad"):
            # XNNPACK divides by the number of real elements; zeros that count must be real ones.
            height, width = window.padding
            x = b.pad(x, [(0, 0), (0, 0), (height, height), (width, width)], 0.0)
        else:
            padding += _symmetric(window.padding)
        operator = ops.Pool(PoolKind.AVERAGE, padding, window.kernel, window.stride)
        return b.reshape(b.from_nhwc(b.emit(operator, b.nhwc(x))), shape_of(node))

    return lower


def _adaptive_average_pool(spatial: int) -> Lowering:
    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        x = _as_feature_map(b, b.tensor(argument(node, "self")), spatial)
        before = static(x.shape[2:])
        after = _as_pair(static(shape_of(node)[-spatial:]), 1)
        if all(old % new == 0 for old, new in zip(before, after, strict=True)):
            x = _averages(b, x, (before[0] // after[0], before[1] // after[1]))
        else:
            # Rows first, then columns, each window by itself: all have as many columns as rows.
            for axis in (0, 1):
                x = _adaptive_averages(b, x, axis, before[axis], after[axis])
        return b.reshape(x, shape_of(node))

    return lower


def _averages(b: ProgramBuilder, x: Tensor, kernel: Pair) -> Tensor:
    return b.from_nhwc(b.emit(ops.Pool(PoolKind.AVERAGE, Padding(), kernel, kernel), b.nhwc(x)))


def _adaptive_averages(b: ProgramBuilder, x: Tensor, axis: int, old: int, new: int) -> Tensor:
    windows = [(place * old // new, -(-(place + 1) * old // new)) for place in range(new)]
    means = []
    for first, last in windows:
        size = last - first
        piece = b.slice(x, 2 + axis, first, size)
        means.append(_averages(b, piece, (size, 1) if axis == 0 else (1, size)))
    return b.concatenated(means, 2 + axis)


# -- resizing --------------------------------------------------------------------------------------------------------


def _upsample_bilinear(b: ProgramBuilder, node: Node) -> Tensor:
    height, width = static(shape_of(node)[2:])
    operator = ops.ResizeBilinear(height, width, bool(argument(node, "align_corners")))
    return b.from_nhwc(b.emit(operator, b.nhwc(b.tensor(argument(node, "input")))))


def _upsample_nearest(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "input"))
    batch, channels, height, width = x.shape
    _, _, tall, wide = shape_of(node)
    if not nearest_repeats_evenly(node):
        for axis, indices in zip((2, 3), nearest_indices(node), strict=True):
            x = _repeated_pattern(b, x, axis, indices)
        return x
    factors = (largest(tall // height), largest(wide // width))
    if dynamic_count(x.shape) > 1:
        return _repeated_pixels(b, x, factors)
    cells = b.reshape(x, (batch, channels, height, 1, width, 1))
    return b.reshape(expand(b, cells, (batch, channels, height, factors[0], width, factors[1])), shape_of(node))


def _repeated_pixels(b: ProgramBuilder, x: Tensor, factors: Pair) -> Tensor:
    """Each pixel repeated, where several sizes change: a transposed convolution with a window of ones per channel."""
    channels = largest(x.shape[1])
    operator = ops.Convolution(
        ConvolutionKind.TRANSPOSED,
        Padding(),
        kernel=factors,
        stride=factors,
        dilation=(1, 1),
        groups=channels,
        group_inputs=1,
        group_outputs=1,
    )
    return b.from_nhwc(b.emit(operator, b.nhwc(x), b.filled((channels, *factors, 1), 1.0).value))


def pattern_of(indices: Sequence[int], size: int) -> tuple[list[int], int]:
    """The shortest beginning of `indices` that says them all, and how far along the axis it moves on from each to next.

    Of 0 0 1 2 2 3 (of 4), it is 0 0 1, and 2.
    """
    for length in range(1, len(indices) + 1):
        step = size * length // len(indices)
        fits = len(indices) % length == 0 and size * length % len(indices) == 0
        pattern = list(indices[:length])
        if fits and max(pattern) < step:
            periods = range(0, len(indices), length)
            if all(indices[at + i] == pattern[i] + at // length * step for at in periods for i in range(length)):
                return pattern, step
    return list(indices), size


def _repeated_pattern(b: ProgramBuilder, x: Tensor, axis: int, indices: Sequence[int]) -> Tensor:
    pattern, step = pattern_of(indices, largest(x.shape[axis]))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    periods = b.reshape(x, (*before, len(indices) // len(pattern), step, *after))
    return b.reshape(chosen(b, periods, axis + 1, pattern), (*before, len(indices), *after))


def resize_is_exact(node: Node) -> bool:
    """Whether the sizes are in the very ratio by which PyTorch computes sample positions."""
    factors = argument(node, "scale_factors")
    if not factors or argument(node, "output_size") is not None:
        return True
    before, after = shape_of(argument(node, "input"))[2:], shape_of(node)[2:]
    return all(old * factor == new for old, factor, new in zip(before, factors, after, strict=True))


def nearest_indices(node: Node) -> list[list[int]]:
    """The row, and the column, that PyTorch's nearest-neighbour upsampling takes for each of the result's.

    It computes them in single precision: for a few sizes they fall one short of the exact ones. Of sizes that change,
    those of the largest call.
    """
    found = []
    for before, after in zip(shape_of(argument(node, "input"))[2:], shape_of(node)[2:], strict=True):
        old, new = largest(before), largest(after)
        scale = torch.tensor(old / new, dtype=torch.float32)
        source = (torch.arange(new, dtype=torch.float32) * scale).floor().clamp(max=old - 1)
        found.append([int(index) for index in source.tolist()])
    return found


def nearest_repeats_evenly(node: Node) -> bool:
    """Whether nearest-neighbour upsampling repeats every row and column equally often.

    Of sizes that change, the largest has the indices of all others, as their ratio is the same.
    """
    for before, after in zip(shape_of(argument(node, "input"))[2:], shape_of(node)[2:], strict=True):
        if after % before != 0 or not isinstance(after // before, int):
            return False
    sizes = zip(nearest_indices(node), shape_of(argument(node, "input"))[2:], strict=True)
    return all(
        indices == [index // (len(indices) // largest(size)) for index in range(len(indices))]
        for indices, size in sizes
    )


LOWERINGS: dict[str, Lowering] = {
    "aten.convolution.default": _convolution,
    "aten.max_pool1d.default": _max_pool(1),
    "aten.max_pool2d.default": _max_pool(2),
    "aten.avg_pool1d.default": _average_pool(1),
    "aten.avg_pool2d.default": _average_pool(2),
    "aten.adaptive_avg_pool1d.default": _adaptive_average_pool(1),
    "aten._adaptive_avg_pool2d.default": _adaptive_average_pool(2),
    "aten.upsample_bilinear2d.vec": _upsample_bilinear,
    "aten.upsample_nearest2d.vec": _upsample_nearest,
}
