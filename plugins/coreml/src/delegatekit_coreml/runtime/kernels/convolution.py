"""Convolutions and pooling."""

from __future__ import annotations

import math
from typing import Final

from torch.nn import functional

from ..kernel import Ints, Kernel, Tensor, kernel

_CONVOLUTIONS: Final = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED: Final = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
_MAXIMA: Final = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGES: Final = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}


def _pads(x: Tensor, kernel_sizes: Ints, strides: Ints, dilations: Ints, pad_type: str, pad: Ints) -> list[int]:
    """Padding before and after each axis, by MIL's kinds of padding."""
    axes = len(kernel_sizes)
    if pad_type == "custom":
        found = list(pad)
        if len(found) != 2 * axes or any(item < 0 for item in found):
            raise ValueError(f"pads {found[:8]}")
        return found
    if pad_type == "valid":
        return [0] * 2 * axes
    if pad_type not in ("same", "same_lower"):
        raise ValueError(f"pad_type = {pad_type!r:.20}")
    found = []
    for axis, (size, stride, dilation) in enumerate(zip(kernel_sizes, strides, dilations, strict=True)):
        length = x.shape[2 + axis]
        total = max((math.ceil(length / stride) - 1) * stride + (size - 1) * dilation + 1 - length, 0)
        less, more = total // 2, total - total // 2
        found += [more, less] if pad_type == "same_lower" else [less, more]
    return found


def _padded(x: Tensor, pads: list[int], value: float = 0.0) -> Tensor:
    if not any(pads):
        return x
    pairs = [pads[at : at + 2] for at in range(0, len(pads), 2)]
    return functional.pad(x, [item for pair in reversed(pairs) for item in pair], value=value)


def _symmetric(pads: list[int]) -> list[int] | None:
    """One number for each axis, if before and after are the same."""
    return pads[::2] if pads[::2] == pads[1::2] else None


def _conv(
    x: Tensor,
    weight: Tensor,
    strides: Ints,
    pad_type: str,
    pad: Ints,
    dilations: Ints,
    groups: int,
    bias: Tensor | None = None,
) -> Tensor:
    axes = weight.dim() - 2
    pads = _pads(x, tuple(weight.shape[2:]), strides, dilations, pad_type, pad)
    padding = _symmetric(pads)
    if padding is None:
        x, padding = _padded(x, pads), [0] * axes
    return _CONVOLUTIONS[axes](x, weight, bias, strides, padding, dilations, groups)


def _conv_transpose(
    x: Tensor,
    weight: Tensor,
    pad: Ints,
    pad_type: str,
    strides: Ints,
    dilations: Ints,
    groups: int,
    output_shape: Ints | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    axes = weight.dim() - 2
    if pad_type not in ("custom", "valid"):
        raise ValueError(f"pad_type = {pad_type!r:.20} of a transposed convolution")
    whole = _TRANSPOSED[axes](x, weight, bias, strides, 0, 0, groups, dilations)
    pads = pad if pad_type == "custom" else (0,) * 2 * axes
    for axis in range(axes):
        before, after = pads[2 * axis : 2 * axis + 2]
        size = whole.shape[2 + axis] - before - after if output_shape is None else output_shape[2 + axis]
        whole = whole.narrow(2 + axis, before, size)
    return whole


def _max_pool(
    x: Tensor,
    kernel_sizes: Ints,
    strides: Ints,
    pad_type: str,
    pad: Ints,
    ceil_mode: bool,
) -> Tensor:
    axes = len(kernel_sizes)
    padded = _padded(x, _pads(x, kernel_sizes, strides, (1,) * axes, pad_type, pad), -math.inf)
    return _MAXIMA[axes](padded, kernel_sizes, strides, ceil_mode=ceil_mode)


def _avg_pool(
    x: Tensor,
    kernel_sizes: Ints,
    strides: Ints,
    pad_type: str,
    pad: Ints,
    exclude_padding_from_average: bool,
    ceil_mode: bool,
) -> Tensor:
    axes = len(kernel_sizes)
    pads = _pads(x, kernel_sizes, strides, (1,) * axes, pad_type, pad)
    average = _AVERAGES[axes]
    result = average(_padded(x, pads), kernel_sizes, strides, ceil_mode=ceil_mode)
    if not exclude_padding_from_average or not any(pads):
        return result
    shares = average(_padded(x.new_ones((1, 1, *x.shape[2:])), pads), kernel_sizes, strides, ceil_mode=ceil_mode)
    return result / shares


KERNELS: Final[dict[str, Kernel]] = {
    "conv": kernel(_conv),
    "conv_transpose": kernel(_conv_transpose),
    "max_pool": kernel(_max_pool),
    "avg_pool": kernel(_avg_pool),
}
