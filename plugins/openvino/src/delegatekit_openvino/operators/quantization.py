"""Quantized values: integers with scales between a quantize and a dequantize, and constants that are integers.

The forms are those that OpenVINO's own passes look for: a FakeQuantize and a conversion, a conversion and a product.
Constants of matrix products stay integers, which OpenVINO unpacks while it computes.
"""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from .common import FLOATS, binary

_INTEGERS: Final = ("int8", "uint8")
_FOUR_BITS: Final = (-8, 7)


def _quantize(b: ModelBuilder, call: Call) -> Value:
    own = call.quantization
    assert own is not None
    scale, zero = float(own.scale), int(own.zero_point)
    x = b.cast(b.value(call["input"]), torch.float32)
    bounds = [
        b.number(bound, torch.float32)
        for bound in ((own.minimum - zero) * scale, (own.maximum - zero) * scale, own.minimum, own.maximum)
    ]
    made = b.declare(b.op("fake_quantize", x, *bounds, levels=own.maximum - own.minimum + 1), x.shape)
    return b.cast(made, call.result.dtype)


def _dequantize(b: ModelBuilder, call: Call) -> Value:
    """Constants and values: what OpenVINO unpacks, or computes with as it is."""
    own, source = call.quantization, call["input"]
    assert own is not None
    dtype = b.result_type(call)
    scale, zero = (torch.as_tensor(item).detach() for item in (own.scale, own.zero_point))
    if own.group is not None:
        return _grouped(b, call, scale, zero)
    shape = [source.shape[axis] if axis == own.axis else 1 for axis in range(source.rank)] if scale.dim() else []
    value = b.cast(_integers(b, source, _is_narrow(call)), dtype)
    if not own.is_symmetric:
        value = binary(b, "subtract", value, b.constant(zero.expand(scale.shape).reshape(shape).to(dtype)))
    return binary(b, "multiply", value, b.constant(scale.reshape(shape).to(dtype)))


def _grouped(b: ModelBuilder, call: Call, scale: torch.Tensor, zero: torch.Tensor) -> Value:
    """A matrix whose groups of neighbors in a row have a scale each: with an axis more until it is unpacked."""
    own, source = call.quantization, call["input"]
    assert own is not None and own.group is not None and source.constant is not None
    dtype, (rows, columns) = b.result_type(call), source.shape
    groups = (rows, columns // own.group, 1)
    value = b.cast(_integers(b, source, _is_narrow(call), (rows, columns // own.group, own.group)), dtype)
    if not own.is_symmetric:
        value = binary(b, "subtract", value, b.constant(zero.expand(scale.shape).reshape(groups).to(dtype)))
    value = binary(b, "multiply", value, b.constant(scale.reshape(groups).to(dtype)))
    return b.reshape(value, (rows, columns))


def _integers(b: ModelBuilder, source: Operand, narrow: bool, shape: tuple[int, ...] | None = None) -> Value:
    """The integers of a dequantize; constants in 4 bits, if all fit, and with an axis more."""
    known = source.constant
    if known is None:
        return b.value(source)
    shape = tuple(known.shape) if shape is None else shape
    if narrow and known.numel() % 2 == 0:
        low, high = known.detach().reshape(-1, 2).to(torch.int16).unbind(-1)
        return b.packed(((low & 15) | ((high & 15) << 4)).to(torch.uint8), shape, "i4", known)
    return b.constant(known.reshape(shape))


def _is_narrow(call: Call) -> bool:
    own = call.quantization
    return own is not None and _FOUR_BITS[0] <= own.minimum and own.maximum <= _FOUR_BITS[1]


# -- conditions --------------------------------------------------------------------------------------------------------


def known_parameters(call: Call) -> str | None:
    """Scales and zero points are known; integers are int8 or uint8, numbers floating-point."""
    own = call.quantization
    if own is None:
        return "scales or zero points are computed, or in blocks of an unusual form"
    integers, real = (call.result, call["input"]) if _quantizes(call) else (call["input"], call.result)
    if integers.dtype_name not in _INTEGERS or real.dtype_name not in FLOATS:
        return f"{integers.dtype_name} and {real.dtype_name}: int8 or uint8, and floating-point numbers are taken"
    if not own.is_per_tensor and not call["input"].is_constant:
        return "several scales of a computed tensor"
    return None


def _quantizes(call: Call) -> bool:
    return ".quantize" in call.operator


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "quantized_decomposed.quantize_per_tensor.default",
        _quantize,
        known_parameters,
        keep=True,
        passenger=True,
        integers=True,
    ),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default "
        "torchao.dequantize_affine.default",
        _dequantize,
        known_parameters,
        keep=True,
        passenger=True,
        integers=True,
    ),
)
