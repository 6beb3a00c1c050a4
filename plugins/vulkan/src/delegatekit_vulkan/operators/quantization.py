"""Quantize and dequantize: conversions of activations, constant integers, rows whose scales are found in each call."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Argument, Tensor
from ..ir.stock import CHOOSE, DEQUANTIZE, DEQUANTIZE_BLOCKS, QUANTIZE, QUANTIZE_BLOCKS
from ..ir.types import DataType
from ..targets import LEAST_SCALE
from .program import Lower, ProgramBuilder

_INT8: Final = (torch.int8, -128, 127)

# -- scales that are known beforehand ----------------------------------------------------------------------------------


def static_integers(call: Call) -> str | None:
    """Float32 activations as int8, -128 to 127, with one scale known beforehand; constant integers as they like."""
    if call.result.is_known:
        return None
    quantization = call.quantization
    if quantization is None:
        return "scales or zero points are computed, or not one for each channel or group"
    bounds = quantization.dtype, quantization.minimum, quantization.maximum
    if bounds != _INT8 or not quantization.is_per_tensor:
        what = "in all" if quantization.is_per_tensor else "for each channel"
        kind = dtype_name(quantization.dtype)
        return f"{kind}, {bounds[1]} to {bounds[2]}, {what}: the runtime has int8, -128 to 127, in all"
    scale = float(quantization.scale)
    if not LEAST_SCALE <= scale <= 1 / LEAST_SCALE:
        return f"the scale {scale} or its inverse is no normal float32: devices make 0 of others"
    return _float32(call)


def _float32(call: Call) -> str | None:
    """The numbers that integers are made of, or become, are float32."""
    found = (call["input"].dtype, *(result.dtype for result in call.results))
    halves = [dtype for dtype in found if dtype.is_floating_point and dtype is not torch.float32]
    return f"numbers of {dtype_name(halves[0])} are quantized: only float32 is" if halves else None


def _is_constant(call: Call) -> bool:
    """Constant integers are worth no delegate of their own."""
    return call.result.is_known


def _quantize(b: ProgramBuilder, call: Call) -> Tensor:
    arguments = [b.tensor(call["input"]), *_parameters(call), None]
    return b.call(QUANTIZE, arguments, b.shape(call), DataType.INT8)


def _dequantize(b: ProgramBuilder, call: Call) -> Tensor:
    if call.result.is_known:
        return _constant_integers(b, call)
    arguments = [b.tensor(call["input"]), *_parameters(call), None, None]
    return b.call(DEQUANTIZE, arguments, b.shape(call), b.result_type(call))


def _parameters(call: Call) -> tuple[Argument, ...]:
    quantization = call.quantization
    assert quantization is not None and quantization.is_per_tensor
    return (
        float(quantization.scale),
        int(quantization.zero_point),
        quantization.minimum,
        quantization.maximum,
    )


def _constant_integers(b: ProgramBuilder, call: Call) -> Tensor:
    data, quantization = b.known(call["input"]), call.quantization
    assert data is not None and quantization is not None
    b.release(call)
    return b.integers(data, quantization, b.result_type(call))


# -- scales that are found in each call --------------------------------------------------------------------------------


def found_scales(call: Call) -> str | None:
    """Scales that are found in each call are for float32 as int8, for whole axes; constant integers as they like."""
    if call.results[0].is_known:
        return None
    if call.quantization is not None:
        return static_integers(call)
    dtype = next(call[name] for name in ("target_dtype", "input_dtype", "output_dtype") if call.has(name))
    if (dtype, call["quant_min"], call["quant_max"]) != _INT8:
        return f"{dtype_name(dtype)}, {call['quant_min']} to {call['quant_max']}: the runtime has int8, -128 to 127"
    if call.get("mapping_type", "ASYMMETRIC") != "ASYMMETRIC":
        return f"the mapping is {call['mapping_type']}: the runtime has ASYMMETRIC"
    for name in ("scale", "zero_point"):
        if call.has(name) and not isinstance(call[name], Operand):
            return f"{name} is left out"
    shape = call["input"].shape
    for size, full in zip(call["block_size"], shape, strict=True):
        if not (isinstance(size, int) and size == 1) and str(size) != str(full):
            return f"blocks of {list(call['block_size'])} in {list(shape)}: the runtime has those of whole axes"
    return _float32(call)


def _choose(b: ProgramBuilder, call: Call) -> tuple[Tensor, ...]:
    x = b.tensor(call["input"])
    bounds = call["quant_min"], call["quant_max"], call["eps"]
    arguments = [x, "ASYMMETRIC", b.numbers(call, "block_size"), None, *bounds, None, None, False]
    scale, zero_point = call.results
    types = b.datatype(scale.dtype), b.datatype(zero_point.dtype)
    return b.calls(CHOOSE, arguments, [(shape_of(scale), types[0]), (shape_of(zero_point), types[1])])


def _quantize_blocks(b: ProgramBuilder, call: Call) -> Tensor:
    return b.call(QUANTIZE_BLOCKS, [*_blocks(b, call), None, *_bounds(call)], b.shape(call), DataType.INT8)


def _dequantize_blocks(b: ProgramBuilder, call: Call) -> Tensor:
    if call.quantization is not None:
        return _dequantize(b, call)
    arguments = [*_blocks(b, call), None, *_bounds(call), None]
    return b.call(DEQUANTIZE_BLOCKS, arguments, b.shape(call), b.result_type(call))


def _blocks(b: ProgramBuilder, call: Call) -> tuple[Argument, ...]:
    block = b.numbers(call, "block_size")
    return b.tensor(call["input"]), block, b.tensor(call["scale"]), b.tensor(call["zero_point"])


def _bounds(call: Call) -> tuple[Argument, ...]:
    return call["quant_min"], call["quant_max"]


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(QUANTIZE, _quantize, static_integers, keep=True, any_type=True),
    row(
        f"{DEQUANTIZE} quantized_decomposed.dequantize_per_channel.default",
        _dequantize,
        static_integers,
        keep=True,
        passenger=_is_constant,
        any_type=True,
    ),
    row(CHOOSE, _choose, found_scales, keep=True, any_type=True, takes_sizes=True),
    row(QUANTIZE_BLOCKS, _quantize_blocks, found_scales, keep=True, any_type=True, takes_sizes=True),
    row(
        DEQUANTIZE_BLOCKS,
        _dequantize_blocks,
        found_scales,
        keep=True,
        passenger=_is_constant,
        any_type=True,
        takes_sizes=True,
    ),
)
