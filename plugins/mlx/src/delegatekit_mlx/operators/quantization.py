"""Quantized values: integers with scales between a quantize and a dequantize, and constants that are integers."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.constraints import known_scales
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import FLOATS, add, binary, mul, sub, unary
from .weights import packed, unpacked

_SCALES: Final = known_scales(("int8", "uint8"), FLOATS)


def _quantize(b: GraphBuilder, call: Call) -> Value:
    """As PyTorch defines it: a FakeQuantize takes some numbers between two steps for the other one."""
    own = call.quantization
    assert own is not None
    x = b.cast(b.value(call["input"]), torch.float32)
    steps = unary(b, schema.RoundNode, mul(b, x, 1.0 / float(own.scale)))
    steps = add(b, steps, float(int(own.zero_point)))
    steps = binary(b, schema.MaximumNode, steps, float(own.minimum))
    return b.cast(binary(b, schema.MinimumNode, steps, float(own.maximum)), call.result.dtype)


def _dequantize(b: GraphBuilder, call: Call) -> Value:
    own, source, dtype = call.quantization, call["input"], call.result.dtype
    assert own is not None
    found = packed(b, call.result, torch.float32)
    if found is not None:
        return b.cast(unpacked(b, found, source.shape), dtype)
    scale, zero = (torch.as_tensor(item).detach() for item in (own.scale, own.zero_point))
    value, shape = b.cast(b.value(source), torch.float32), list(source.shape)
    if own.group is not None:
        value = b.reshape(value, (shape[0], shape[1] // own.group, own.group))
        sizes = [shape[0], shape[1] // own.group, 1]
    else:
        sizes = [shape[axis] if axis == own.axis else 1 for axis in range(source.rank)] if scale.dim() else []
    value = sub(b, value, b.constant(zero.expand(scale.shape).reshape(sizes).float()))
    value = mul(b, value, b.constant(scale.reshape(sizes).float()))
    return b.cast(b.reshape(value, shape), dtype)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("quantized_decomposed.quantize_per_tensor.default", _quantize, _SCALES, keep=True, passenger=True),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default "
        "torchao.dequantize_affine.default",
        _dequantize,
        _SCALES,
        keep=True,
        passenger=True,
    ),
)
