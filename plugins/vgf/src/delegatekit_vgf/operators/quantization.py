"""Quantizes and dequantizes that are in no unit: at the border of quantized parts, and of weights."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch

from delegatekit_api import Call
from delegatekit_toolkit.constraints import known_scales
from delegatekit_toolkit.quantized import numbers_of
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Cast

from ..ir.builder import Lower, Value, VgfBuilder
from ..ir.types import DTYPES
from .common import DIALECT, REALS, add, clamp, mul, result_type, sub

_SCALES: Final = known_scales(("int8", "int16"), REALS, constants=False)


def _quantize(b: VgfBuilder, call: Call) -> Value:
    """round(x / scale) + zero point, between the least and the largest integer."""
    own = call.quantization
    assert own is not None
    x = b.cast(b.value(call["input"]), DTYPES[torch.float32])
    steps = DIALECT.primitives["round"](b, mul(b, x, 1.0 / float(own.scale)))
    if int(own.zero_point):
        steps = add(b, steps, int(own.zero_point))
    return b.apply(Cast(), clamp(b, steps, own.minimum, own.maximum), dtype=DTYPES[call.result.dtype])


def _dequantize(b: VgfBuilder, call: Call) -> Value:
    """(integer - zero point) scale; of a constant the numbers."""
    own, known = call.quantization, call["input"].constant
    assert own is not None
    if known is not None:
        return b.constant(numbers_of(known, own).to(call.result.dtype))
    value = b.apply(Cast(), b.value(call["input"]), dtype=result_type(call))
    if int(own.zero_point):
        value = sub(b, value, int(own.zero_point))
    return mul(b, value, float(np.float32(own.scale)))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "quantized_decomposed.quantize_per_tensor.default",
        _quantize,
        _SCALES,
        keep=True,
        passenger=True,
    ),
    row(
        "quantized_decomposed.dequantize_per_tensor.default quantized_decomposed.dequantize_per_channel.default "
        "torchao.dequantize_affine.default",
        _dequantize,
        _SCALES,
        keep=True,
        passenger=True,
    ),
)
