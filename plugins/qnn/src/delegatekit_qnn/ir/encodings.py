"""From the program's quantization to QNN's encodings. Activations are unsigned in QNN, weights signed."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from delegatekit_api import LoweringError, Operand
from delegatekit_api.schemes import Quantization

from .graph import Array, Encoding
from .types import DataType

#: Integers of activations: their type in QNN, their range, and the offset that makes them unsigned.
_ACTIVATIONS: Final = {
    torch.uint8: (DataType.UFIXED8, (0, 255), 0),
    torch.uint16: (DataType.UFIXED16, (0, 65535), 0),
    torch.int8: (DataType.UFIXED8, (-128, 127), 128),
    torch.int16: (DataType.UFIXED16, (-32768, 32767), 32768),
}
#: Integers of symmetric weights.
_WEIGHTS: Final = {torch.int8: DataType.SFIXED8, torch.int16: DataType.SFIXED16}
#: Weights within this range are stored in 4 bits.
_FOUR_BITS: Final = (-8, 7)
#: Clamps of a computed value: the integers of the result cover only its range.
CLAMPS: Final = frozenset({"aten.relu.default", "aten.clamp.default", "aten.hardtanh.default"})


def made_as(result: Operand) -> Quantization | None:
    """The quantization of a call's result: that of its quantize, or of the clamp that alone reads it."""
    if result.quantization is None and len(result.users) == 1 and result.users[0].operator in CLAMPS:
        return result.users[0].result.quantization
    return result.quantization


def activation_fault(quantization: Quantization | None) -> str | None:
    """The reason why activations do not fit the processor; None if they do."""
    if quantization is None:
        return "its scales are computed in each call: the processor needs fixed ones"
    if quantization.dtype not in _ACTIVATIONS:
        name = str(quantization.dtype).removeprefix("torch.")
        return f"its integers are {name}: uint8, int8, uint16 and int16 are taken"
    if not quantization.is_per_tensor:
        return "it has several scales: activations have one"
    found, wanted = (quantization.minimum, quantization.maximum), _ACTIVATIONS[quantization.dtype][1]
    if found != wanted:
        return f"its integers are {found[0]} to {found[1]}: the whole range of the type is taken"
    if not 0 < float(quantization.scale) < float("inf"):
        return f"its scale is {float(quantization.scale)}"
    return None


def activation_type(quantization: Quantization) -> tuple[DataType, Encoding]:
    """The type and encoding of activations."""
    datatype, _, shift = _ACTIVATIONS[quantization.dtype]
    return datatype, Encoding((float(quantization.scale),), (int(quantization.zero_point) + shift,))


def border_type(quantization: Quantization) -> tuple[DataType, Encoding]:
    """The type and encoding of integers at the delegate's inputs and outputs, in the program's form."""
    datatype, encoding = activation_type(quantization)
    if quantization.dtype.is_signed:
        datatype = DataType.SFIXED8 if datatype is DataType.UFIXED8 else DataType.SFIXED16
    return datatype, Encoding((encoding.scale,), (int(quantization.zero_point),))


def weight_fault(quantization: Quantization | None) -> str | None:
    """The reason why constant integers do not fit the processor; None if they do."""
    if quantization is None:
        return "its scales are not constant"
    if quantization.group is not None:
        return "its scales are for groups of a row: one for each output channel, or one for all, are taken"
    if quantization.dtype not in _WEIGHTS or not quantization.is_symmetric:
        name = str(quantization.dtype).removeprefix("torch.")
        zeros = "" if quantization.is_symmetric else " with zero points"
        return f"its integers are {name}{zeros}: weights are int8 or int16, symmetric"
    return None


def is_activation(quantization: Quantization | None) -> bool:
    """True if constant integers are like activations rather than weights: asymmetric, with one scale."""
    return quantization is not None and weight_fault(quantization) is not None and quantization.is_per_tensor


def weight_type(quantization: Quantization, axis: int | None) -> tuple[DataType, Encoding]:
    """The type and encoding of symmetric weights with scales along `axis`."""
    scales = torch.as_tensor(quantization.scale, dtype=torch.float64).reshape(-1).tolist()
    narrow = _FOUR_BITS[0] <= quantization.minimum and quantization.maximum <= _FOUR_BITS[1]
    # The library replaces a single scale along an axis by another one.
    axis = axis if len(scales) > 1 else None
    return _WEIGHTS[quantization.dtype], Encoding(tuple(scales), (0,) * len(scales), axis, 4 if narrow else None)


def encoded(numbers: Array, datatype: DataType) -> tuple[Array, Encoding]:
    """Numbers as unsigned integers with a scale that covers them and zero; a single number is exact.

    Raises LoweringError for infinities and NaNs.
    """
    if not np.isfinite(numbers).all():
        raise LoweringError("a constant has infinities or NaNs, which no integers stand for")
    last = float((1 << 8 * datatype.numpy.itemsize) - 1)
    low, high = min(0.0, float(numbers.min(initial=0.0))), max(0.0, float(numbers.max(initial=0.0)))
    if low == high:
        return np.zeros(numbers.shape, datatype.numpy), Encoding((1.0,), (0,))
    found = np.unique(numbers)
    if found.size == 1 and datatype.numpy.itemsize == 1:
        # 1 step above zero, or all steps below. With 16 bits, such different scales make sums 2 % wrong.
        scale, zero = (high, 0) if high else (-low, 1)
    else:
        scale = (high - low) / last
        zero = round(-low / scale)
    integers = np.clip(np.rint(numbers / scale) + zero, 0, last)
    return integers.astype(datatype.numpy), Encoding((scale,), (zero,))


def bias_integers(numbers: Array, scales: Array) -> tuple[Array, Encoding]:
    """A bias as int32 in steps of input times weight, one or one for each channel; in larger ones if necessary.

    Products of two 16-bit tensors have such small steps that 32 bits of them do not reach far.
    """
    reached = np.abs(numbers).reshape(-1) if scales.size > 1 else np.abs(numbers).max(initial=0.0)
    scales = np.maximum(scales, reached / (2**31 - 1))
    integers = np.clip(np.rint(numbers / scales), -(2**31), 2**31 - 1).astype(np.int32)
    axis = None if scales.size == 1 else 0
    found = tuple(map(float, scales.reshape(-1)))
    return integers, Encoding(found, (0,) * len(found), axis)
