"""Quantized values: integers with scales between a quantize and a dequantize, and constants that are integers.

Constants are a conversion and a product, a form that OpenVINO's passes look for: those of matrix products stay integers
until it computes.
"""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.constraints import known_scales
from delegatekit_toolkit.quantized import numbers_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from .common import FLOATS, binary, clamp, unary

_SCALES: Final = known_scales(("int8", "uint8"), FLOATS)
_FOUR_BITS: Final = (-8, 7)


def _quantize(b: ModelBuilder, call: Call) -> Value:
    """As PyTorch defines it: a FakeQuantize takes some numbers between two steps for the other one."""
    own = call.quantization
    assert own is not None
    x = b.cast(b.value(call["input"]), torch.float32)
    steps = unary(b, "round", binary(b, "multiply", x, 1.0 / float(own.scale)), mode="half_to_even")
    if int(own.zero_point):
        steps = binary(b, "add", steps, int(own.zero_point))
    return b.cast(clamp(b, steps, own.minimum, own.maximum), call.result.dtype)


def _dequantize(b: ModelBuilder, call: Call) -> Value:
    """Constants and values: what OpenVINO unpacks, or computes with as it is."""
    own, source = call.quantization, call["input"]
    assert own is not None
    dtype = b.result_type(call)
    scale, zero = (torch.as_tensor(item).detach() for item in (own.scale, own.zero_point))
    if own.group is not None:
        return _grouped(b, call, scale, zero)
    if own.axis and source.rank == 2 and source.constant is not None:
        # OpenVINO takes scales along the inputs of a layer for those along its outputs.
        return b.constant(numbers_of(source.constant, own).to(dtype))
    shape = [source.shape[axis] if axis == own.axis else 1 for axis in range(source.rank)] if scale.dim() else []
    value = b.cast(b.value(source), dtype)
    if not own.is_symmetric:
        value = binary(b, "subtract", value, b.constant(zero.expand(scale.shape).reshape(shape).to(dtype)))
    return binary(b, "multiply", value, b.constant(scale.reshape(shape).to(dtype)))


def _grouped(b: ModelBuilder, call: Call, scale: torch.Tensor, zero: torch.Tensor) -> Value:
    """A matrix whose groups of neighbors in a row have a scale each: with an axis more until it is unpacked."""
    own, source = call.quantization, call["input"]
    assert own is not None and own.group is not None and source.constant is not None
    dtype, (rows, columns) = b.result_type(call), source.shape
    groups = (rows, columns // own.group, 1)
    value = b.cast(_integers(b, source.constant, _is_narrow(call), (rows, columns // own.group, own.group)), dtype)
    if not own.is_symmetric:
        value = binary(b, "subtract", value, b.constant(zero.expand(scale.shape).reshape(groups).to(dtype)))
    value = binary(b, "multiply", value, b.constant(scale.reshape(groups).to(dtype)))
    return b.reshape(value, (rows, columns))


def _integers(b: ModelBuilder, known: torch.Tensor, narrow: bool, shape: tuple[int, ...]) -> Value:
    """Constant integers with an axis more; in 4 bits, if all fit."""
    if not narrow or known.numel() % 2:
        return b.constant(known.reshape(shape))
    low, high = known.detach().reshape(-1, 2).to(torch.int16).unbind(-1)
    return b.packed(((low & 15) | ((high & 15) << 4)).to(torch.uint8), shape, "i4", known)


def _is_narrow(call: Call) -> bool:
    own = call.quantization
    return own is not None and _FOUR_BITS[0] <= own.minimum and own.maximum <= _FOUR_BITS[1]


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "quantized_decomposed.quantize_per_tensor.default",
        _quantize,
        _SCALES,
        keep=True,
        passenger=True,
        integers=True,
    ),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default "
        "torchao.dequantize_affine.default",
        _dequantize,
        _SCALES,
        keep=True,
        passenger=True,
        integers=True,
    ),
)
