"""Images with their channels last in memory: convolutions, pads, and rows as images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from delegatekit_api.operators import RuntimeTensor

from .numbers import Scale, fixed_point
from .program import CHANNELS_LAST, ProgramBuilder, is_ambiguous


@dataclass(frozen=True)
class Filters:
    """Weights (O, I / groups, H, W), of a transposed convolution (I, O, H, W), with a scale for each of O."""

    data: torch.Tensor
    scales: Sequence[float]
    #: In steps of input times weight, int32.
    bias: torch.Tensor | None
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    transposed: bool = False


def convolved(
    b: ProgramBuilder, x: RuntimeTensor, before: Scale, filters: Filters, shape: Sequence[int], result: Scale
) -> RuntimeTensor:
    """The convolution of an image (N, C, H, W) whose channels are last in memory; `shape` is the result's."""
    data, outputs = filters.data, len(filters.scales)
    batch, channels = x.spec.shape[:2]
    bias = filters.bias
    if bias is None and filters.groups > 1:  # these kernels need one
        bias = torch.zeros(outputs, dtype=torch.int32)
    factors = [fixed_point(before.scale * scale / result.scale) for scale in filters.scales]
    multipliers, shifts = (torch.tensor(items, dtype=torch.int32) for items in zip(*factors, strict=True))
    alone = batch == 1 and filters.groups == channels and outputs % channels == 0 and not filters.transposed
    order = (1, 2, 3, 0) if alone or filters.transposed else (0, 2, 3, 1)
    weight = data.permute(order).contiguous()
    settings: dict[str, Any] = {
        "input_nhwc": _moved(x.spec.shape),
        "filter_nhwc": [outputs, *weight.shape[1:3], 1] if alone else list(weight.shape),
        "output_nhwc": _moved(shape),
        "padding_hw": list(filters.padding),
        "stride_hw": list(filters.stride),
        "dilation_hw": list(filters.dilation),
        "input_offset": -before.zero_point,
        "output_offset": result.zero_point,
        "activation_min": result.low,
        "activation_max": result.high,
    }
    constant = b.calls.constant
    first = (x, constant(weight), None if bias is None else constant(bias), filters.stride, filters.padding)
    offsets = (-before.zero_point, result.zero_point, constant(multipliers), constant(shifts), result.low, result.high)
    if filters.transposed:
        sizes = b.sizes.transposed(**settings, padding_offsets_hw=[0, 0])
        arguments = (*first, (0, 0), filters.dilation, *offsets, *map(b.calls.scratch, sizes))
        return b.call("quantized_transpose_conv2d", *arguments, shape=shape, like=x)
    if alone:
        scratch = b.calls.scratch(b.sizes.depthwise(**settings, ch_mult=outputs // channels))
        arguments = (*first, filters.dilation, outputs // channels, *offsets, scratch)
        return b.call("quantized_depthwise_conv2d", *arguments, shape=shape, like=x)
    scratch = b.calls.scratch(b.sizes.convolution(**settings))
    return b.call("quantized_conv2d", *first, filters.dilation, *offsets, scratch, shape=shape, like=x)


def image_of(b: ProgramBuilder, tensor: RuntimeTensor) -> RuntimeTensor:
    """An image with the channels last in memory, of one row for (N, C, L)."""
    shape = tensor.spec.shape
    if len(shape) == 3:
        tensor = b.reshaped(tensor, (*shape[:2], 1, shape[2]))
    return b.channels_last(tensor)


def of_rank(b: ProgramBuilder, tensor: RuntimeTensor, shape: Sequence[int]) -> RuntimeTensor:
    """The inverse of `image_of`."""
    return tensor if len(shape) == 4 else b.reshaped(tensor, shape)


def _moved(shape: Sequence[int]) -> list[int]:
    return [shape[axis] for axis in CHANNELS_LAST]


def padded(
    b: ProgramBuilder, x: RuntimeTensor, before: Sequence[int], after: Sequence[int], filler: int
) -> RuntimeTensor:
    """A tensor of at most 4 axes with amounts added before and after each."""
    shape = [size + low + high for size, low, high in zip(x.spec.shape, before, after, strict=True)]
    if is_ambiguous(x.spec.shape):  # the library takes it for an image with the channels last
        x = b.channels_last(x)
    order = x.spec.dim_order or range(len(shape))
    missing = [0] * (4 - len(shape))
    amounts = [(*missing, *(side[axis] for axis in order)) for side in (before, after)]
    return b.call("pad", x, *amounts, filler, shape=shape, like=x)
