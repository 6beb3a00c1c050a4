"""How XNNPACK stores what a quantized program means: formats of weights and activations, and constants in them."""

from __future__ import annotations

import torch

from delegatekit_api.quantization import Quantization

from .graph import (
    DataType,
    Format,
    PerChannelQuantization,
    PerGroupQuantization,
    PerTensorQuantization,
    Value,
    static,
)

#: The groups of 4-bit weights are multiples of so many elements.
GROUP_STEP = 32
#: The integers of activations.
_FULL_RANGE = (-128, 127)


def activation_format(quantization: Quantization) -> Format | None:
    """The format of numbers that are quantized so; None if XNNPACK has none."""
    full = (quantization.minimum, quantization.maximum) == _FULL_RANGE
    if quantization.dtype is not torch.int8 or not full or not isinstance(quantization.scale, float):
        return None
    return Format(DataType.QINT8, PerTensorQuantization(quantization.scale, int(quantization.zero_point)))


def weight_format(quantization: Quantization) -> Format | None:
    """The format of a weight that is quantized so; None if XNNPACK has none, and its numbers are wanted."""
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
    if quantization.axis is None:
        return None
    datatype = DataType.QCINT4 if narrow else DataType.QCINT8
    return Format(datatype, PerChannelQuantization(scale.float(), quantization.axis))


def numbers(value: Value) -> torch.Tensor:
    """What the elements of a constant stand for, as float32; its own data if it is not quantized."""
    data, quantization = value.data, value.quantization
    assert data is not None
    match quantization:
        case None:
            return data
        case PerTensorQuantization(scale, zero_point):
            return (data.float() - zero_point) * scale
        case PerChannelQuantization(scales, axis):
            sizes = [1] * len(value.shape)
            sizes[axis] = -1
            return data.reshape(static(value.shape)).float() * scales.reshape(sizes)
        case PerGroupQuantization(scales, group):
            rows, columns = static(value.shape)
            return (data.reshape(rows, -1, group).float() * scales.unsqueeze(2)).reshape(rows, columns)
    raise AssertionError(f"a constant quantized as {quantization}")


def dequantized(data: torch.Tensor, quantization: Quantization) -> torch.Tensor:
    """What integers stand for, as float32 of their shape."""
    scale, zero_point = quantization.scale, quantization.zero_point
    if isinstance(scale, float):
        return (data.float() - float(zero_point)) * scale
    assert isinstance(zero_point, torch.Tensor)
    if quantization.group is not None:
        grouped = data.reshape(*scale.shape, quantization.group).float()
        return ((grouped - zero_point.unsqueeze(2)) * scale.unsqueeze(2)).reshape(data.shape)
    assert quantization.axis is not None
    sizes = [1] * data.dim()
    sizes[quantization.axis] = -1
    return (data.float() - zero_point.reshape(sizes)) * scale.float().reshape(sizes)


def packed(data: torch.Tensor) -> torch.Tensor:
    """Integers -8 to 7 of shape (rows, columns), two in a byte: the first in the low half, 8 added to each."""
    nibbles = (data.to(torch.int16) + 8).to(torch.uint8)
    if nibbles.shape[1] % 2:
        nibbles = torch.nn.functional.pad(nibbles, (0, 1), value=8)
    return nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)
