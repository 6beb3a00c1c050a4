"""XNNPACK's storage formats: element types, formats of quantized weights and activations, and their constants."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api.schemes import Quantization
from delegatekit_toolkit.quantized import real_numbers

from .graph import Graph, Value
from .types import DataType, Format, PerChannelQuantization, PerGroupQuantization, PerTensorQuantization, Shape, static

#: PyTorch's floating-point types that XNNPACK supports.
FLOATS: Final = {
    torch.float32: DataType.FLOAT32,
    torch.float16: DataType.FLOAT16,
    torch.bfloat16: DataType.BFLOAT16,
}
#: XNNPACK's floating-point types, as PyTorch's.
TORCH_FLOATS: Final = {datatype: dtype for dtype, datatype in FLOATS.items()}
#: The group sizes of 4-bit weights are multiples of this.
GROUP_STEP = 32
#: The integers of activations.
_FULL_RANGE = (-128, 127)


def activation_format(quantization: Quantization) -> Format | None:
    """The format of activations with this quantization; None if XNNPACK has none."""
    full = (quantization.minimum, quantization.maximum) == _FULL_RANGE
    if quantization.dtype is not torch.int8 or not full or not isinstance(quantization.scale, float):
        return None
    return Format(DataType.QINT8, PerTensorQuantization(quantization.scale, int(quantization.zero_point)))


def weight_format(quantization: Quantization) -> Format | None:
    """The format of a weight with this quantization; None if XNNPACK has none and needs its dequantized numbers."""
    if quantization.dtype is not torch.int8 or not quantization.is_symmetric:
        return None
    narrow = quantization.minimum >= -8 and quantization.maximum <= 7
    scale = quantization.scale
    if isinstance(scale, float):
        return Format(DataType.QINT8, PerTensorQuantization(scale))
    if quantization.group is not None:
        if not narrow or quantization.group % GROUP_STEP:
            return None
        return Format(DataType.QBINT4, PerGroupQuantization(scale.float(), quantization.group))
    assert quantization.axis is not None
    datatype = DataType.QCINT4 if narrow else DataType.QCINT8
    return Format(datatype, PerChannelQuantization(scale.float(), quantization.axis))


def numbers(value: Value) -> torch.Tensor:
    """The elements of a constant, dequantized to float32; its own data, of any type, if it is not quantized."""
    data = value.data
    assert data is not None
    match value.quantization:
        case None:
            return data
        case PerTensorQuantization(scale, zero_point):
            return real_numbers(data, scale, zero_point)
        case PerChannelQuantization(scales, axis):
            return real_numbers(data.reshape(static(value.shape)), scales, axis=axis)
        case PerGroupQuantization(scales, group):
            return real_numbers(data.reshape(static(value.shape)), scales, group=group)
    raise AssertionError(f"a constant quantized as {value.quantization}")


def rounded_groups(graph: Graph) -> list[tuple[Shape, int]]:
    """The shape and group size of each weight whose scales lose digits in bfloat16, the type of those of groups."""
    weights = dict.fromkeys(value for node in graph.nodes for value in node.inputs)
    found = []
    for value in weights:
        match value.quantization:
            case PerGroupQuantization(scales, group) if not torch.equal(scales, scales.bfloat16().float()):
                found.append((value.shape, group))
    return found


def narrowed(weight: torch.Tensor) -> torch.Tensor:
    """A float32 weight (outputs and inputs are its first two axes) as float16; itself if the loss were too large.

    Rounding to float16 costs 2^-11 of each number, and for subnormal ones 2^-25 in absolute terms. So each output and
    each input must have a normal number, or only zeros; and none may be too large.
    """
    finfo = torch.finfo(torch.float16)
    sizes = weight.abs()
    for axis in (0, 1):
        largest = sizes.amax([other for other in range(weight.dim()) if other != axis])
        if not bool(((largest == 0) | ((largest >= finfo.tiny) & (largest <= finfo.max))).all()):
            return weight
    return weight.to(torch.float16)
