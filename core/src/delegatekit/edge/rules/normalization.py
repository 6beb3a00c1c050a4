"""Batch normalization at inference: folded into the convolution or linear before it, else one multiply and one add.

Statistics that are not constants (inputs, or buffers that the method updates) are applied at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from ..arguments import read_argument
from ..builder import PLACE, EdgeBuilder, Value
from ..draft import Draft
from .table import Family
from .writing import NARROW_FLOATS, convert

aten = torch.ops.aten

NORMALIZATION = Family("normalization")


@dataclass(frozen=True)
class _Normalization:
    """The arguments of a batch normalization; parameters and statistics have a number for each channel."""

    x: Node
    weight: Node | None
    bias: Node | None
    mean: Node | None
    variance: Node | None
    epsilon: float

    @classmethod
    def of(cls, call: Draft) -> _Normalization:
        return cls(*call["input", "weight", "bias", "running_mean", "running_var", "eps"])


@NORMALIZATION.rule(aten.batch_norm.default)
def _batch_norm(b: EdgeBuilder, call: Draft) -> Value:
    given = _Normalization.of(call)
    if not call["training"]:
        return _normalized(b, given, call.value)
    if given.mean is not None or given.variance is not None:
        b.refuse("batch_norm in training mode", hint="call model.eval() before torch.export")
    # A layer without running statistics computes them from its input in eval mode, too.
    return _normalized_by_input(b, given, over_batch=True)


@NORMALIZATION.rule(aten._native_batch_norm_legit_no_training.default)
def _native_batch_norm(b: EdgeBuilder, call: Draft) -> Value:
    result = _normalized(b, _Normalization.of(call), call.value[0] if call.value is not None else None)
    return NotImplemented if result is NotImplemented else (result, None, None)


@NORMALIZATION.rule(aten.instance_norm.default)
def _instance_norm(b: EdgeBuilder, call: Draft) -> Value:
    if not call["use_input_stats"]:
        return _normalized(b, _Normalization.of(call), call.value)
    return _normalized_by_input(b, _Normalization.of(call), over_batch=False)


def _normalized_by_input(b: EdgeBuilder, given: _Normalization, *, over_batch: bool) -> Value:
    """Normalization by the mean and variance of the input itself, for each channel (and sample, unless over_batch)."""
    rank, dtype = len(b.shape(given.x)), b.dtype(given.x)
    # The squares of narrow floats soon overflow their own type.
    x = _wide(b, given.x)
    weight, bias = (None if item is None else _wide(b, item) for item in (given.weight, given.bias))
    axes = [*([0] if over_batch else []), *range(2, rank)]
    centred = b.call(aten.sub.Tensor, x, b.call(aten.mean.dim, x, axes, True))
    spread = b.call(aten.mean.dim, b.call(aten.mul.Tensor, centred, centred), axes, True)
    factor = b.call(aten.rsqrt.default, b.call(aten.add.Scalar, spread, given.epsilon))
    result = b.call(aten.mul.Tensor, centred, factor)
    per_channel = (1, -1, *[1] * (rank - 2))
    if weight is not None:
        result = b.call(aten.mul.Tensor, result, b.call(aten.view.default, weight, per_channel))
    if bias is not None:
        result = b.call(aten.add.Tensor, result, b.call(aten.view.default, bias, per_channel))
    return convert(b, result, dtype)


def _wide(b: EdgeBuilder, x: Node) -> Node:
    return convert(b, x, torch.float32) if b.dtype(x) in NARROW_FLOATS else x


def _normalized(b: EdgeBuilder, given: _Normalization, value: Any) -> Value:
    if given.mean is None or given.variance is None:
        return NotImplemented
    parameters = (given.weight, given.bias, given.mean, given.variance)
    known = [None if node is None else b.constants.get(node) for node in parameters]
    weight, bias, mean, variance = known
    unknown = any(node is not None and tensor is None for node, tensor in zip(parameters, known, strict=True))
    if mean is None or variance is None or unknown:
        return _normalized_at_run_time(b, given)
    # In double precision up to the factor itself: it is then as exact as the weights that it scales.
    x = given.x
    factor = (variance.double() + given.epsilon).rsqrt()
    if weight is not None:
        factor = factor * weight.double()
    shift = -mean.double() * factor
    if bias is not None:
        shift = shift + bias.double()
    folded = _fold(b, x, factor, shift, value)
    if folded is not None:
        return folded
    dtype, shape = b.dtype(x), (1, -1, *[1] * (len(b.shape(x)) - 2))
    scaled = b.call(aten.mul.Tensor, x, b.constant(factor.to(dtype).reshape(shape)))
    return b.call(aten.add.Tensor, scaled, b.constant(shift.to(dtype).reshape(shape)), value=value)


def _normalized_at_run_time(b: EdgeBuilder, given: _Normalization) -> Value:
    """x * factor + shift; in float32 for narrow dtypes, whose statistics may be float32, too."""
    assert given.mean is not None and given.variance is not None
    dtype = b.dtype(given.x)
    x = _wide(b, given.x)
    wide = b.dtype(x)
    mean, variance = convert(b, given.mean, wide), convert(b, given.variance, wide)
    factor = b.call(aten.rsqrt.default, b.call(aten.add.Scalar, variance, given.epsilon))
    if given.weight is not None:
        factor = b.call(aten.mul.Tensor, factor, convert(b, given.weight, wide))
    shift = b.call(aten.neg.default, b.call(aten.mul.Tensor, mean, factor))
    if given.bias is not None:
        shift = b.call(aten.add.Tensor, shift, convert(b, given.bias, wide))
    per_channel = (1, -1, *[1] * (len(b.shape(x)) - 2))
    factor, shift = (b.call(aten.view.default, item, per_channel) for item in (factor, shift))
    scaled = b.call(aten.mul.Tensor, x, factor)
    return convert(b, b.call(aten.add.Tensor, scaled, shift), dtype)


def _fold(b: EdgeBuilder, x: Node, factor: torch.Tensor, shift: torch.Tensor, value: Any) -> Value | None:
    """The producer of `x` with scaled weights, if it is a convolution or linear that only this node uses."""
    if x.target is aten.convolution.default:
        x_in, weight, bias, *rest = x.args
        transposed, groups = read_argument(x, "transposed"), read_argument(x, "groups")
    elif x.target is aten.linear.default and len(b.shape(x)) == 2:
        x_in, weight, bias = (read_argument(x, name) for name in ("input", "weight", "bias"))
        rest, transposed, groups = [], False, 1
    else:
        return None
    origin_input = b.origin.args[0] if b.origin is not None else None
    if not isinstance(origin_input, Node) or len(origin_input.users) != 1:
        return None
    kernel = b.constants.get(weight)  # type: ignore[arg-type]
    offset = None if bias is None else b.constants.get(bias)  # type: ignore[arg-type]
    if kernel is None or (bias is not None and offset is None):
        return None
    moved = shift if offset is None else shift + offset.double() * factor
    scaled = partial(_scale_outputs, kernel, factor, transposed=transposed, groups=groups)
    new_weight = b.computed(kernel, scaled, "_folded_weight")
    new_bias = b.constant(moved.to(kernel.dtype), "_folded_bias")
    folded = b.emit(x.target, (x_in, new_weight, new_bias, *rest), {}, value if value is not None else x.meta["val"])
    # It takes the layer's place in the user's model, with its weight; its value and debug handle are the norm's.
    folded.meta |= {key: x.meta[key] for key in PLACE if key in x.meta}
    return folded


def _scale_outputs(kernel: torch.Tensor, factor: torch.Tensor, *, transposed: bool, groups: int) -> torch.Tensor:
    """Scale the kernel's output channels: dimension 0, or (groups, dimension 1) of a transposed convolution."""
    factor = factor.to(kernel.dtype)
    if not transposed:
        return kernel * factor.reshape(-1, *[1] * (kernel.dim() - 1))
    inputs, outputs = kernel.shape[0] // groups, kernel.shape[1]
    grouped = kernel.reshape(groups, inputs, outputs, *kernel.shape[2:])
    scale = factor.reshape(groups, 1, outputs, *[1] * (kernel.dim() - 2))
    return (grouped * scale).reshape(kernel.shape)
