"""Quantize and dequantize in the edge dialect: kept for backends that ask, arithmetic for all others.

torchao's flows spell quantization as operators of two namespaces, `quantized_decomposed` and `torchao`. A backend that
keeps them sees them unchanged, weights as integers followed by a dequantize. The runtime has no kernels for them:
elsewhere they are arithmetic, which is PyTorch's own definition.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from delegatekit_api.schemes import DEQUANTIZE_TABLES

from ..builder import EdgeBuilder, Value
from ..draft import Draft
from .table import Family
from .writing import convert, view

aten = torch.ops.aten

#: By name: the packages that create quantized programs register the operators.
QUANTIZED_OPERATORS = Family("quantized_operators")

_TENSOR = ("input", "scale", "zero_point", "quant_min", "quant_max", "dtype")


def _quantize(b: EdgeBuilder, x: Node, factor: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype) -> Value:
    """clamp(round(x * factor) + zero_point, low, high); factor and zero point are numbers or nodes."""
    scaled = _with(b, aten.mul, convert(b, x, torch.float32), factor)
    shifted = b.call(aten.round.default, scaled)
    if isinstance(zero_point, Node) or zero_point != 0:
        shifted = _with(b, aten.add, shifted, zero_point)
    return convert(b, b.call(aten.clamp.default, shifted, low, high), dtype)


def _dequantize(b: EdgeBuilder, q: Node, scale: Any, zero_point: Any, dtype: torch.dtype | None) -> Value:
    """(q - zero_point) * scale."""
    number = convert(b, q, dtype or torch.float32)
    if zero_point is not None and (isinstance(zero_point, Node) or zero_point != 0):
        number = _with(b, aten.sub, number, zero_point)
    return _with(b, aten.mul, number, scale)


def _with(b: EdgeBuilder, packet: Any, left: Node, right: Any) -> Node:
    if not isinstance(right, Node):
        return b.call(packet.Scalar, left, right)  # type: ignore[no-any-return]
    return b.call(packet.Tensor, left, convert(b, right, b.dtype(left)))  # type: ignore[no-any-return]


@QUANTIZED_OPERATORS.rule("quantized_decomposed.quantize_per_tensor.default")
def _quantize_per_tensor(b: EdgeBuilder, call: Draft) -> Value:
    x, scale, zero_point, low, high, dtype = call[_TENSOR]
    return _quantize(b, x, 1.0 / scale, zero_point, low, high, dtype)


@QUANTIZED_OPERATORS.rule(
    "quantized_decomposed.quantize_per_tensor.tensor", "quantized_decomposed.quantize_per_tensor.tensor2"
)
def _quantize_by_tensor(b: EdgeBuilder, call: Draft) -> Value:
    x, scale, zero_point, low, high, dtype = call[_TENSOR]
    # PyTorch takes the scale out of its tensor and divides in double precision.
    factor = b.call(aten.reciprocal.default, convert(b, view(b, scale, ()), torch.float64))
    return _quantize(b, x, factor, view(b, zero_point, ()), low, high, dtype)


@QUANTIZED_OPERATORS.rule(
    *(f"quantized_decomposed.dequantize_per_tensor.{overload}" for overload in ("default", "tensor", "tensor2"))
)
def _dequantize_per_tensor(b: EdgeBuilder, call: Draft) -> Value:
    q, *parameters = call["input", "scale", "zero_point"]
    scale, zero_point = (view(b, item, ()) if isinstance(item, Node) else item for item in parameters)
    return _dequantize(b, q, scale, zero_point, call.get("out_dtype"))


def _along(b: EdgeBuilder, x: Node, parameters: Any, axis: int) -> Any:
    """Parameters of each index along `axis`, broadcast against x."""
    rank = len(b.shape(x))
    sizes = [1] * rank
    sizes[axis % rank] = b.shape(parameters)[0]
    return view(b, parameters, tuple(sizes))


@QUANTIZED_OPERATORS.rule("quantized_decomposed.quantize_per_channel.default")
def _quantize_per_channel(b: EdgeBuilder, call: Draft) -> Value:
    x, scales, zero_points, axis = call["input", "scales", "zero_points", "axis"]
    low, high, dtype = call["quant_min", "quant_max", "dtype"]
    factors = b.call(aten.reciprocal.default, _along(b, x, scales, axis))
    return _quantize(b, x, factors, _along(b, x, zero_points, axis), low, high, dtype)


@QUANTIZED_OPERATORS.rule("quantized_decomposed.dequantize_per_channel.default")
def _dequantize_per_channel(b: EdgeBuilder, call: Draft) -> Value:
    q, scales, zero_points, axis = call["input", "scales", "zero_points", "axis"]
    shift = None if zero_points is None else _along(b, q, zero_points, axis)
    return _dequantize(b, q, _along(b, q, scales, axis), shift, call.get("out_dtype"))


@QUANTIZED_OPERATORS.rule("quantized_decomposed.choose_qparams.tensor")
def _choose_parameters(b: EdgeBuilder, call: Draft) -> Value:
    """Scale and zero point of a whole tensor: the range of its values and 0 maps to that of the integers."""
    x, low, high, epsilon = call["input", "quant_min", "quant_max", "eps"]
    value = call.value
    x = view(b, convert(b, x, torch.float32), (math.prod(b.shape(x)),))
    least = b.call(aten.clamp.default, b.call(aten.amin.default, x, [0]), None, 0.0)
    most = b.call(aten.clamp.default, b.call(aten.amax.default, x, [0]), 0.0)
    span = b.call(aten.sub.Tensor, most, least)
    scale = b.call(aten.clamp.default, b.call(aten.div.Scalar, span, float(high - low)), epsilon)
    steps = b.call(aten.round.default, b.call(aten.div.Tensor, least, scale))
    zero_point = b.call(aten.clamp.default, b.call(aten.rsub.Scalar, steps, low), low, high)
    shape = tuple(value[0].shape) if value is not None else (1,)
    types = (value[0].dtype, value[1].dtype) if value is not None else (torch.float64, torch.int64)
    return tuple(view(b, convert(b, item, to), shape) for item, to in zip((scale, zero_point), types, strict=True))


@QUANTIZED_OPERATORS.check(DEQUANTIZE_TABLES)
def _constant_codes(b: EdgeBuilder, call: Draft) -> tuple[Any, ...] | None:
    """The places in the tables as a constant of the type that PyTorch looks up with, however large it is."""
    codes: Any = call.args[0] if call.args else None
    is_converted = isinstance(codes, Node) and codes.target is aten._to_copy.default
    found = b.fold(codes.target, codes.args, codes.kwargs, at_any_size=True) if is_converted else None
    return None if found is None else (found, *call.args[1:])


@QUANTIZED_OPERATORS.rule(DEQUANTIZE_TABLES)
def _dequantize_tables(b: EdgeBuilder, call: Draft) -> Value:
    """The numbers as a constant: looked up in each call they would take many times its memory."""
    found = b.fold(call.target, call.args, call.kwargs, at_any_size=True)
    return NotImplemented if found is None else found
