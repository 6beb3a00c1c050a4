"""Operators on feature maps: convolution, pooling, resizing. All work in NHWC; one-dimensional ones with height 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import per_axis
from delegatekit_toolkit.constraints import constant
from delegatekit_toolkit.sizes import Dynamic, dynamic_count, largest
from delegatekit_toolkit.support import Constraint, Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir import operators as ops
from ..ir.formats import numbers
from ..ir.graph import Value
from ..ir.layout import Tensor
from ..ir.operators import ConvolutionKind, Padding, PoolKind
from ..ir.types import DataType, Format, PerChannelQuantization, PerRowQuantization, static
from .common import POOLED_NAN, RUN_LIMIT, chosen, expand, index_runs
from .precision import TERM_LIMIT, always
from .program import Lower, ProgramBuilder

#: (height, width)
Pair: TypeAlias = "tuple[int, int]"


def _as_pair(setting: Sequence[int], one: int) -> Pair:
    """A setting of each spatial axis as (height, width); a one-dimensional operator has height `one`."""
    return (one, setting[0]) if len(setting) == 1 else (setting[0], setting[1])


def _as_feature_map(b: ProgramBuilder, x: Tensor, spatial: int) -> Tensor:
    """x (N, C, spatial...) or (C, spatial...) as (N, C, H, W)."""
    shape = x.shape if len(x.shape) == spatial + 2 else (1, *x.shape)
    return b.reshape(x, shape if spatial == 2 else (*shape[:2], 1, shape[2]))


def _symmetric(padding: Pair) -> Padding:
    return Padding(top=padding[0], right=padding[1], bottom=padding[0], left=padding[1])


# -- convolution -------------------------------------------------------------------------------------------------------


def one_or_two_dimensional(call: Call) -> str | None:
    """1-d or 2-d, with a batch axis."""
    rank = call["input"].rank
    if rank in (3, 4):
        return None
    return f"a convolution over {rank - 2} axes: XNNPACK supports one or two"


def convolution_padding(call: Call) -> str | None:
    """Padding is not negative, and output_padding is less than the stride."""
    if min(call["padding"]) < 0:
        return f"negative padding {list(call['padding'])}"
    if not call["transposed"]:
        return None
    extra, stride = call["output_padding"], call["stride"]
    if all(more < step for more, step in zip(extra, stride, strict=True)):
        return None
    return f"output_padding {list(extra)} is not less than stride {list(stride)}"


def _short_windows(call: Call) -> bool:
    """Each element of a convolution is a short sum."""
    _, *window = shape_of(call["weight"])
    return not call["transposed"] and math.prod(map(largest, window)) <= TERM_LIMIT


def _convolution(b: ProgramBuilder, call: Call) -> Tensor:
    source = call["input"]
    weight, format = b.filter(call["weight"])
    if weight.dim() == 3:
        weight = weight.unsqueeze(2)
    groups, transposed = call["groups"], call["transposed"]
    kernel = (weight.shape[2], weight.shape[3])
    inputs = largest(shape_of(source)[1])
    outputs = weight.shape[1] * groups if transposed else weight.shape[0]
    kind = _convolution_kind(groups, inputs, transposed=transposed)
    operator = ops.Convolution(
        kind,
        padding=_symmetric(_as_pair(call["padding"], 0)),
        kernel=kernel,
        stride=_as_pair(call["stride"], 1),
        dilation=_as_pair(call["dilation"], 1),
        groups=groups,
        group_inputs=inputs // groups,
        group_outputs=outputs // groups,
        adjustment=_as_pair(call["output_padding"], 0) if transposed else (0, 0),
    )
    x = b.nhwc(_as_feature_map(b, b.tensor(source), source.rank - 2))
    operands = [x, _filter(b, weight, format, operator)]
    bias = call["bias"]
    if bias is not None:
        operands.append(b.dense(b.tensor(bias)))
    if x.quantization == PerRowQuantization(1):
        # XNNPACK would replace the convolution with this, too.
        operands[1] = b.reshaped(operands[1], (outputs, inputs))
        return b.reshape(b.from_nhwc(b.emit(ops.FullyConnected(), *operands)), shape_of(call.result))
    return b.reshape(b.from_nhwc(b.emit(operator, *operands)), shape_of(call.result))


def _convolution_kind(groups: int, inputs: int, *, transposed: bool) -> ConvolutionKind:
    if transposed:
        return ConvolutionKind.TRANSPOSED
    return ConvolutionKind.DEPTHWISE if groups == inputs > 1 else ConvolutionKind.REGULAR


def _filter(b: ProgramBuilder, weight: torch.Tensor, format: Format, operator: ops.Convolution) -> Value:
    """The weight in XNNPACK's layout, as a view: the file writer makes it contiguous."""
    height, width = operator.kernel
    outputs = operator.groups * operator.group_outputs
    quantization = format.quantization
    if isinstance(quantization, PerChannelQuantization):
        # XNNPACK requires a scale for each channel of the result.
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


# -- pooling -----------------------------------------------------------------------------------------------------------


def pool_shape(spatial: int, *, divides: bool = False) -> Constraint:
    """Constraint: windows overhang along axes that do not change; an average is divided by the window's own size."""

    def check(call: Call) -> str | None:
        if call["ceil_mode"] and dynamic_count(shape_of(call["self"])[-spatial:]):
            return "ceil_mode where the size changes from call to call: XNNPACK's padding is fixed"
        divisor = call["divisor_override"] if divides else None
        if divisor is None:
            return None
        window = math.prod(per_axis(call["kernel_size"], spatial))
        if divisor != window or any(per_axis(call["padding"], spatial)) or call["ceil_mode"]:
            return f"divisor_override = {divisor}: XNNPACK divides by the number of elements in the window"
        return None

    divisor = "No divisor of its own; with" if divides else "With"
    check.__doc__ = f"{divisor} ceil_mode, the spatial axes do not change."
    return check


@dataclass(frozen=True)
class PoolWindow:
    """The arguments of a pooling operator, each as (height, width)."""

    kernel: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    #: Rows and columns beyond the padding that the last windows of ceil_mode cover.
    overhang: Pair


def pool_window(call: Call, spatial: int) -> PoolWindow:
    """The window of a max_pool or avg_pool call with `spatial` axes."""
    kernel = _as_pair(per_axis(call["kernel_size"], spatial), 1)
    stride = _as_pair(per_axis(call["stride"] or call["kernel_size"], spatial), 1)
    padding = _as_pair(per_axis(call["padding"], spatial), 0)
    dilation = _as_pair(per_axis(call["dilation"], spatial), 1) if call.has("dilation") else (1, 1)
    overhang = [0, 0]
    if call["ceil_mode"]:
        size = _as_pair(static(shape_of(call["self"])[-spatial:]), 1)
        result = _as_pair(static(shape_of(call.result)[-spatial:]), 1)
        overhang = [
            max(0, (result[i] - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - size[i] - 2 * padding[i])
            for i in (0, 1)
        ]
    return PoolWindow(kernel, stride, padding, dilation, (overhang[0], overhang[1]))


def _max_pool(spatial: int) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        window = pool_window(call, spatial)
        padding = _symmetric(window.padding) + Padding(bottom=window.overhang[0], right=window.overhang[1])
        operator = ops.Pool(PoolKind.MAXIMUM, padding, window.kernel, window.stride, window.dilation)
        x = _as_feature_map(b, b.tensor(call["self"]), spatial)
        return b.reshape(b.from_nhwc(b.emit(operator, b.nhwc(x))), shape_of(call.result))

    return lower


def _average_pool(spatial: int) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        window = pool_window(call, spatial)
        x = _as_feature_map(b, b.tensor(call["self"]), spatial)
        if x.shape[2:] == window.kernel and not any(window.padding):
            return b.reshape(b.from_nhwc(b.emit(ops.GlobalAveragePool(), b.nhwc(x))), shape_of(call.result))
        padding = Padding(bottom=window.overhang[0], right=window.overhang[1])
        if call["count_include_pad"]:
            # XNNPACK divides by the number of real elements; zeros that count must be real ones.
            height, width = window.padding
            x = b.pad(x, [(0, 0), (0, 0), (height, height), (width, width)], 0.0)
        else:
            padding += _symmetric(window.padding)
        operator = ops.Pool(PoolKind.AVERAGE, padding, window.kernel, window.stride)
        return b.reshape(b.from_nhwc(b.emit(operator, b.nhwc(x))), shape_of(call.result))

    return lower


def few_windows(axes: int) -> Constraint:
    """Constraint: the result's sizes divide the input's, or are small."""

    def check(call: Call) -> str | None:
        before, after = shape_of(call["self"])[-axes:], shape_of(call.result)[-axes:]
        if dynamic_count((*before, *after)):
            return f"{before} to {after} needs windows that change from call to call"
        if all(old % new == 0 for old, new in zip(before, after, strict=True)) or max(map(largest, after)) <= RUN_LIMIT:
            return None
        return f"{before} to {after} needs more than {RUN_LIMIT} windows of different sizes"

    check.__doc__ = "The result's sizes divide the input's, or are 25 at most; and none of them changes."
    return check


def _adaptive_average_pool(spatial: int) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        x = _as_feature_map(b, b.tensor(call["self"]), spatial)
        before = static(x.shape[2:])
        after = _as_pair(static(shape_of(call.result)[-spatial:]), 1)
        if all(old % new == 0 for old, new in zip(before, after, strict=True)):
            x = _averages(b, x, (before[0] // after[0], before[1] // after[1]))
        else:
            # Rows first, then columns, each window separately: all have as many columns as rows.
            for axis in (0, 1):
                x = _adaptive_averages(b, x, axis, before[axis], after[axis])
        return b.reshape(x, shape_of(call.result))

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


# -- resizing ----------------------------------------------------------------------------------------------------------


def resize_ratio(call: Call) -> str | None:
    """The new height and width do not change; scale factors, if given, are exactly the ratio of the sizes."""
    if dynamic_count(shape_of(call.result)[2:]):
        return "a height or width that changes from call to call: XNNPACK resizes to a fixed size"
    if call["align_corners"] or resize_is_exact(call):
        return None
    return f"scale_factors {list(call['scale_factors'])} are not the ratio of the sizes"


def resize_is_exact(call: Call) -> bool:
    """True if the sizes have exactly the ratio by which PyTorch computes sample positions."""
    factors = call["scale_factors"]
    if not factors or call["output_size"] is not None:
        return True
    before, after = shape_of(call["input"])[2:], shape_of(call.result)[2:]
    return all(old * factor == new for old, factor, new in zip(before, factors, after, strict=True))


def _upsample_bilinear(b: ProgramBuilder, call: Call) -> Tensor:
    height, width = static(shape_of(call.result)[2:])
    operator = ops.ResizeBilinear(height, width, bool(call["align_corners"]))
    return b.from_nhwc(b.emit(operator, b.nhwc(b.tensor(call["input"]))))


def nearest_ratio(call: Call) -> str | None:
    """Rows and columns are repeated equally often; or sizes are known, and what repeats has at most 25 runs."""
    shape = shape_of(call["input"])
    before, after = shape[2:], shape_of(call.result)[2:]
    if isinstance(shape[1], Dynamic) and dynamic_count(shape) > 1:
        return "the channels and another size change: XNNPACK's transposed convolution has as many filters as channels"
    if resize_is_exact(call):
        if nearest_repeats_evenly(call):
            return None
        sizes = [largest(size) for size in before]
        patterns = map(pattern_of, nearest_indices(call), sizes)
        if not dynamic_count((*before, *after)) and all(len(index_runs(found)) <= RUN_LIMIT for found, _ in patterns):
            return None
    return f"nearest neighbors from {before} to {after} are not whole repetitions"


def _upsample_nearest(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["input"])
    batch, channels, height, width = x.shape
    _, _, tall, wide = shape_of(call.result)
    if not nearest_repeats_evenly(call):
        for axis, indices in zip((2, 3), nearest_indices(call), strict=True):
            x = _repeated_pattern(b, x, axis, indices)
        return x
    factors = (largest(tall // height), largest(wide // width))
    if dynamic_count(x.shape) > 1:
        return _repeated_pixels(b, x, factors)
    cells = b.reshape(x, (batch, channels, height, 1, width, 1))
    return b.reshape(expand(b, cells, (batch, channels, height, factors[0], width, factors[1])), shape_of(call.result))


def _repeated_pixels(b: ProgramBuilder, x: Tensor, factors: Pair) -> Tensor:
    """Each pixel repeated, if several sizes change: a transposed convolution with a window of ones per channel."""
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


def _repeated_pattern(b: ProgramBuilder, x: Tensor, axis: int, indices: Sequence[int]) -> Tensor:
    pattern, step = pattern_of(indices, largest(x.shape[axis]))
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    periods = b.reshape(x, (*before, len(indices) // len(pattern), step, *after))
    return b.reshape(chosen(b, periods, axis + 1, pattern), (*before, len(indices), *after))


def pattern_of(indices: Sequence[int], size: int) -> tuple[Sequence[int], int]:
    """The shortest prefix of `indices` whose shifted repetitions are all of them, and the shift along the axis.

    For 0 0 1 2 2 3 (of 4), it is 0 0 1, and 2.
    """
    for length in range(1, len(indices)):
        step, rest = divmod(size * length, len(indices))
        if rest or len(indices) % length:
            continue
        pattern, periods = indices[:length], range(0, len(indices), length)
        if all(indices[at + i] == pattern[i] + at // length * step for at in periods for i in range(length)):
            return pattern, step
    return indices, size


def nearest_indices(call: Call) -> list[list[int]]:
    """The row and the column that PyTorch's nearest-neighbor upsampling selects for each of the result's.

    It computes them in single precision: for a few sizes they are one less than the exact ones. For sizes that change,
    those of the largest call.
    """
    found = []
    for before, after in zip(shape_of(call["input"])[2:], shape_of(call.result)[2:], strict=True):
        old, new = largest(before), largest(after)
        scale = torch.tensor(old / new, dtype=torch.float32)
        source = (torch.arange(new, dtype=torch.float32) * scale).floor().clamp(max=old - 1)
        found.append([int(index) for index in source.tolist()])
    return found


def nearest_repeats_evenly(call: Call) -> bool:
    """True if nearest-neighbor upsampling repeats every row and column equally often.

    Of sizes that change, the largest has the indices of all others, as their ratio is the same.
    """
    for before, after in zip(shape_of(call["input"])[2:], shape_of(call.result)[2:], strict=True):
        factor = after // before
        if not isinstance(factor, int) or before * factor != after:
            return False
    return all(
        indices == [index // (len(indices) // largest(size)) for index in range(len(indices))]
        for indices, size in zip(nearest_indices(call), shape_of(call["input"])[2:], strict=True)
    )


# -- the rows ----------------------------------------------------------------------------------------------------------


def _is_selection(call: Call) -> bool:
    """Slices are no more worth a delegate than other selections."""
    return not nearest_repeats_evenly(call)


def _repeats_by_product(call: Call) -> bool:
    """True if several sizes change: pixels are then repeated by a transposed convolution."""
    return dynamic_count(shape_of(call["input"])) < 2


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "convolution.default",
        _convolution,
        one_or_two_dimensional,
        constant("weight", "bias"),
        convolution_padding,
        float16=_short_windows,
    ),
    row("max_pool1d.default", _max_pool(1), pool_shape(1), keep=True, special_values=POOLED_NAN, float16=always),
    row("max_pool2d.default", _max_pool(2), pool_shape(2), keep=True, special_values=POOLED_NAN, float16=always),
    row("avg_pool1d.default", _average_pool(1), pool_shape(1), keep=True),
    row("avg_pool2d.default", _average_pool(2), pool_shape(2, divides=True)),
    row("adaptive_avg_pool1d.default", _adaptive_average_pool(1), few_windows(1), keep=True),
    row("_adaptive_avg_pool2d.default", _adaptive_average_pool(2), few_windows(2)),
    row(
        "upsample_bilinear2d.vec",
        _upsample_bilinear,
        resize_ratio,
        keep=True,
        takes_sizes=True,
        float16=always,
    ),
    row(
        "upsample_nearest2d.vec",
        _upsample_nearest,
        nearest_ratio,
        keep=True,
        passenger=_is_selection,
        takes_sizes=True,
        float16=_repeats_by_product,
    ),
)
