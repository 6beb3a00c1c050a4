"""Batch normalisation at inference: folded into the convolution or linear before it, else one multiply and one add.

Statistics that are no constants (inputs, or buffers that the method updates) are computed with at run time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from ..builder import Builder, Value
from .general import aten, convert, rule


@rule(aten.batch_norm.default)
def _batch_norm(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, weight, bias, mean, variance, training, _, epsilon = args[:8]
    if training:
        b.refuse("batch_norm in training mode", hint="call model.eval() before torch.export")
    return _normalise(b, x, weight, bias, mean, variance, epsilon, value)


@rule(aten._native_batch_norm_legit_no_training.default)
def _native_batch_norm(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, weight, bias, mean, variance, _, epsilon = args
    result = _normalise(b, x, weight, bias, mean, variance, epsilon, value[0] if value is not None else None)
    return NotImplemented if result is NotImplemented else (result, None, None)


@rule(aten.instance_norm.default)
def _instance_norm(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, weight, bias, mean, variance, use_input_stats, _, epsilon = args[:8]
    if not use_input_stats:
        return _normalise(b, x, weight, bias, mean, variance, epsilon, value)
    rank, dtype = len(b.shape(x)), b.dtype(x)
    # The squares of narrow floats soon have no place in their own type.
    x, weight, bias = (None if item is None else _wide(b, item) for item in (x, weight, bias))
    axes = list(range(2, rank))
    centred = b.call(aten.sub.Tensor, x, b.call(aten.mean.dim, x, axes, True))
    spread = b.call(aten.mean.dim, b.call(aten.mul.Tensor, centred, centred), axes, True)
    factor = b.call(aten.rsqrt.default, b.call(aten.add.Scalar, spread, epsilon))
    result = b.call(aten.mul.Tensor, centred, factor)
    per_channel = (1, -1, *[1] * (rank - 2))
    if weight is not None:
        result = b.call(aten.mul.Tensor, result, b.call(aten.view.default, weight, per_channel))
    if bias is not None:
        result = b.call(aten.add.Tensor, result, b.call(aten.view.default, bias, per_channel))
    return convert(b, result, dtype)


def _wide(b: Builder, x: Node) -> Node:
    return convert(b, x, torch.float32) if b.dtype(x) in (torch.float16, torch.bfloat16) else x


def _normalise(
    b: Builder,
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    epsilon: float,
    value: Any,
) -> Value:
    known = [None if node is None else b.constants.get(node) for node in (weight, bias, mean, variance)]
    given = [node is not None for node in (weight, bias, mean, variance)]
    if mean is None or variance is None:
        return NotImplemented
    if known[2] is None or known[3] is None or any(g and k is None for g, k in zip(given, known, strict=True)):
        return _normalise_at_run_time(b, x, weight, bias, mean, variance, epsilon)
    # In double precision up to the factor itself: it is then as exact as the weights that it scales.
    factor = (known[3].double() + epsilon).rsqrt()
    if known[0] is not None:
        factor = factor * known[0].double()
    shift = -known[2].double() * factor
    if known[1] is not None:
        shift = shift + known[1].double()
    folded = _fold(b, x, factor, shift, value)
    if folded is not None:
        return folded
    dtype, shape = b.dtype(x), (1, -1, *[1] * (len(b.shape(x)) - 2))
    scaled = b.call(aten.mul.Tensor, x, b.constant(factor.to(dtype).reshape(shape)))
    return b.call(aten.add.Tensor, scaled, b.constant(shift.to(dtype).reshape(shape)), value=value)


def _normalise_at_run_time(
    b: Builder, x: Node, weight: Node | None, bias: Node | None, mean: Node, variance: Node, epsilon: float
) -> Value:
    """x * factor + shift; in float32 for narrow dtypes, whose statistics may be float32, too."""
    dtype = b.dtype(x)
    x = _wide(b, x)
    wide = b.dtype(x)
    mean, variance = convert(b, mean, wide), convert(b, variance, wide)
    factor = b.call(aten.rsqrt.default, b.call(aten.add.Scalar, variance, epsilon))
    if weight is not None:
        factor = b.call(aten.mul.Tensor, factor, convert(b, weight, wide))
    shift = b.call(aten.neg.default, b.call(aten.mul.Tensor, mean, factor))
    if bias is not None:
        shift = b.call(aten.add.Tensor, shift, convert(b, bias, wide))
    per_channel = (1, -1, *[1] * (len(b.shape(x)) - 2))
    factor, shift = (b.call(aten.view.default, item, per_channel) for item in (factor, shift))
    scaled = b.call(aten.mul.Tensor, x, factor)
    return convert(b, b.call(aten.add.Tensor, scaled, shift), dtype)


def _fold(b: Builder, x: Node, factor: torch.Tensor, shift: torch.Tensor, value: Any) -> Value | None:
    """The producer of `x` with scaled weights, if it is a convolution or linear that only this node uses."""
    if x.target is aten.convolution.default:
        x_in, weight, bias, *rest = x.args
        transposed, groups = bool(rest[3]), int(rest[5])  # type: ignore[arg-type]
    elif x.target is aten.linear.default and len(b.shape(x)) == 2:
        x_in, weight, bias, rest, transposed, groups = x.args[0], x.args[1], _argument(x, 2), [], False, 1
    else:
        return None
    origin_input = b.origin.args[0] if b.origin is not None else None
    if not isinstance(origin_input, Node) or len(origin_input.users) != 1:
        return None
    kernel = b.constants.get(weight)  # type: ignore[arg-type]
    offset = None if bias is None else b.constants.get(bias)  # type: ignore[arg-type]
    if kernel is None or (bias is not None and offset is None):
        return None
    scaled = _scale_outputs(kernel, factor, transposed=transposed, groups=groups)
    moved = shift if offset is None else shift + offset.double() * factor
    new_weight = b.constant(scaled, "_folded_weight")
    new_bias = b.constant(moved.to(kernel.dtype), "_folded_bias")
    return b.emit(x.target, (x_in, new_weight, new_bias, *rest), {}, value if value is not None else x.meta["val"])


def _scale_outputs(kernel: torch.Tensor, factor: torch.Tensor, *, transposed: bool, groups: int) -> torch.Tensor:
    """Scale the kernel's output channels: dimension 0, or (groups, dimension 1) of a transposed convolution."""
    factor = factor.to(kernel.dtype)
    if not transposed:
        return kernel * factor.reshape(-1, *[1] * (kernel.dim() - 1))
    inputs, outputs = kernel.shape[0] // groups, kernel.shape[1]
    grouped = kernel.reshape(groups, inputs, outputs, *kernel.shape[2:])
    scale = factor.reshape(groups, 1, outputs, *[1] * (kernel.dim() - 2))
    return (grouped * scale).reshape(kernel.shape)


def _argument(node: Node, position: int) -> Any:
    return node.args[position] if len(node.args) > position else None
