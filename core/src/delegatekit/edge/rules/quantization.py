"""Quantize and dequantize in the edge dialect: what a backend keeps, and what they are for everybody else.

torchao's flows spell quantization as operators of two namespaces, `quantized_decomposed` and `torchao`. A backend that
keeps them sees them as they are, weights as integers behind a dequantize; `delegatekit_api.quantization` reads them.
The runtime has no kernels for them: for everybody else they are arithmetic, which is PyTorch's own definition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.fx import Node

from ..builder import Builder, Rule, Value
from .general import RULES, aten, convert, view

#: Namespaces of the operators; they are registered by whoever makes a quantized program.
NAMESPACES = frozenset({"quantized_decomposed", "torchao"})


def register(targets: Iterable[Any]) -> None:
    """Add the rules for those of a program's operators that are quantization."""
    for target in targets:
        found = _RULES.get(str(target)) if getattr(target, "namespace", "") in NAMESPACES else None
        if found is not None:
            RULES[target] = found


def _quantize(b: Builder, x: Node, factor: Any, zero_point: Any, low: int, high: int, dtype: torch.dtype) -> Value:
    """clamp(round(x * factor) + zero_point, low, high); factor and zero point are numbers or nodes."""
    scaled = _with(b, aten.mul, convert(b, x, torch.float32), factor)
    shifted = b.call(aten.round.default, scaled)
    if isinstance(zero_point, Node) or zero_point != 0:
        shifted = _with(b, aten.add, shifted, zero_point)
    return convert(b, b.call(aten.clamp.default, shifted, low, high), dtype)


def _dequantize(b: Builder, q: Node, scale: Any, zero_point: Any, dtype: torch.dtype | None) -> Value:
    """(q - zero_point) * scale."""
    number = convert(b, q, dtype or torch.float32)
    if zero_point is not None and (isinstance(zero_point, Node) or zero_point != 0):
        number = _with(b, aten.sub, number, zero_point)
    return _with(b, aten.mul, number, scale)


def _with(b: Builder, packet: Any, left: Node, right: Any) -> Node:
    if not isinstance(right, Node):
        return b.call(packet.Scalar, left, right)  # type: ignore[no-any-return]
    return b.call(packet.Tensor, left, convert(b, right, b.dtype(left)))  # type: ignore[no-any-return]


def _quantize_per_tensor(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    x, scale, zero_point, low, high, dtype = args
    return _quantize(b, x, 1.0 / scale, zero_point, low, high, dtype)


def _dequantize_per_tensor(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    q, scale, zero_point, *_ = args
    return _dequantize(b, q, scale, zero_point, kwargs.get("out_dtype"))


def _quantize_by_tensor(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    x, scale, zero_point, low, high, dtype = args
    # PyTorch takes the scale out of its tensor and divides in double precision.
    factor = b.call(aten.reciprocal.default, convert(b, view(b, scale, ()), torch.float64))
    return _quantize(b, x, factor, view(b, zero_point, ()), low, high, dtype)


def _dequantize_by_tensor(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    q, scale, zero_point, *_ = args
    return _dequantize(b, q, view(b, scale, ()), view(b, zero_point, ()), kwargs.get("out_dtype"))


def _along(b: Builder, x: Node, parameters: Any, axis: int) -> Any:
    """Parameters of each index along `axis`, broadcast against x."""
    rank = len(b.shape(x))
    sizes = [1] * rank
    sizes[axis % rank] = b.shape(parameters)[0]
    return view(b, parameters, tuple(sizes))


def _quantize_per_channel(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    x, scales, zero_points, axis, low, high, dtype = args
    factors = b.call(aten.reciprocal.default, _along(b, x, scales, axis))
    return _quantize(b, x, factors, _along(b, x, zero_points, axis), low, high, dtype)


def _dequantize_per_channel(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    q, scales, zero_points, axis, *_ = args
    shift = None if zero_points is None else _along(b, q, zero_points, axis)
    return _dequantize(b, q, _along(b, q, scales, axis), shift, kwargs.get("out_dtype"))


def _choose_parameters(b: Builder, args: tuple[Any, ...], kwargs: Mapping[str, Any], value: Any) -> Value:
    """Scale and zero point of a whole tensor: the range of its numbers and 0 is that of the integers."""
    x, low, high, epsilon, _ = args
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


_RULES: dict[str, Rule] = {
    "quantized_decomposed.quantize_per_tensor.default": _quantize_per_tensor,
    "quantized_decomposed.quantize_per_tensor.tensor": _quantize_by_tensor,
    "quantized_decomposed.quantize_per_tensor.tensor2": _quantize_by_tensor,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize_per_tensor,
    "quantized_decomposed.dequantize_per_tensor.tensor": _dequantize_by_tensor,
    "quantized_decomposed.dequantize_per_tensor.tensor2": _dequantize_by_tensor,
    "quantized_decomposed.quantize_per_channel.default": _quantize_per_channel,
    "quantized_decomposed.dequantize_per_channel.default": _dequantize_per_channel,
    "quantized_decomposed.choose_qparams.tensor": _choose_parameters,
}
