"""Other spellings for what the stock runtime has no kernel for, or has one that computes something else than PyTorch.

Only nodes that nobody runs as they are come here, after partitioning: backends see the operator itself. What each
kernel does wrongly is said by the limits in `kernels.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..edge.builder import Builder, Rule, Value
from ..edge.rules.general import aten, completed, convert, view
from ..edge.rules.promotion import NARROW_FLOATS
from ..edge.sizes import is_static, same
from .volumes import convolution_3d

#: Operator -> how to compute it otherwise. A rule may answer NotImplemented: then PyTorch's decomposition is tried.
SUBSTITUTES: dict[OpOverload, Rule] = {}


def _substitute(*targets: OpOverload) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        for target in targets:
            SUBSTITUTES[target] = function
        return function

    return register


def _zero_dims_as_one(b: Builder, x: Node, call: Callable[[Node], Node], value: Any) -> Node:
    """What an operator along dim 0 makes of a tensor of no dimensions."""
    return view(b, call(view(b, x, (1,))), tuple(value.shape))


# -- narrow floats: kernels that sum up in the narrow type ------------------------------------------------------------


def _in_float32(target: OpOverload) -> Rule:
    """The operator on float32, its results back in their dtype."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        if not any(isinstance(item, Node) and b.dtype(item) in NARROW_FLOATS for item in args):
            return NotImplemented
        result = b.call(target, *(_widened(b, item) for item in args), **kwargs)
        if isinstance(value, torch.Tensor):
            return convert(b, result, value.dtype)
        parts = [b.call(operator.getitem, result, number) for number in range(len(value))]
        return tuple(convert(b, part, item.dtype) for part, item in zip(parts, value, strict=True))

    return apply


def _widened(b: Builder, item: Any) -> Any:
    return convert(b, item, torch.float32) if isinstance(item, Node) and b.dtype(item) in NARROW_FLOATS else item


for _target in (
    aten.var.correction,
    aten.var_mean.correction,
    aten.native_layer_norm.default,
    aten.avg_pool2d.default,
):
    SUBSTITUTES[_target] = _in_float32(_target)


@_substitute(aten.convolution.default)
def _convolution(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    widened = _in_float32(aten.convolution.default)(b, args, kwargs, value)
    return convolution_3d(b, args, value) if widened is NotImplemented else widened


@_substitute(aten.native_group_norm.default)
def _group_norm(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, weight, bias, batch, channels, positions, groups, epsilon = args
    grouped = view(b, x, (batch, groups, channels // groups * positions))
    moments = b.call(aten.var_mean.correction, grouped, [2], correction=0, keepdim=True)
    variance, mean = (b.call(operator.getitem, moments, number) for number in range(2))
    factor = b.call(aten.rsqrt.default, b.call(aten.add.Scalar, variance, epsilon))
    result = b.call(aten.mul.Tensor, b.call(aten.sub.Tensor, grouped, mean), factor)
    result = view(b, result, b.shape(x))
    per_channel = (1, channels, *[1] * (len(b.shape(x)) - 2))
    if weight is not None:
        result = b.call(aten.mul.Tensor, result, view(b, weight, per_channel))
    if bias is not None:
        result = b.call(aten.add.Tensor, result, view(b, bias, per_channel))
    return (result, *(view(b, item, (batch, groups)) for item in (mean, factor)))


@_substitute(aten.cumsum.default)
def _running_sum(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim = args[:2]
    if not b.shape(x):
        return _zero_dims_as_one(b, x, lambda one: b.call(aten.cumsum.default, one, 0, **kwargs), value)
    if value.dtype not in NARROW_FLOATS:
        return NotImplemented
    x = convert(b, convert(b, x, value.dtype), torch.float32)
    return convert(b, b.call(aten.cumsum.default, x, dim), value.dtype)


# -- sums and products -------------------------------------------------------------------------------------------------


@_substitute(aten.sum.dim_IntList)
def _sum(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dims, keepdim = completed(args, 2, (False,))
    rank = len(b.shape(x))
    if not rank:
        return convert(b, x, value.dtype)
    # Along one dim, the kernel sums up in float32. Beside a second dim of size 1 it does not.
    dim = (dims[0] if dims else 0) % rank
    beside = b.call(aten.unsqueeze.default, x, dim + 1)
    result = b.call(aten.sum.dim_IntList, beside, [dim, dim + 1], keepdim, **kwargs)
    return b.call(aten.squeeze.dims, result, [dim + 1]) if keepdim else result


@_substitute(aten.mm.default, aten.bmm.default)
def _empty_product(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if not same(b.shape(args[0])[-1], 0):
        return NotImplemented
    return b.call(aten.full.default, list(value.shape), 0, dtype=value.dtype)


@_substitute(aten.addmm.default)
def _product_and_sum(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    bias, x, y = args
    scales = [kwargs.get(name, 1) for name in ("alpha", "beta")]
    dtype = value.dtype
    if dtype in NARROW_FLOATS and scales != [1, 1]:
        bias, x, y = (convert(b, item, torch.float32) for item in args)
    product = b.call(aten.mm.default, x, y)
    product, bias = (
        item if scale == 1 else b.call(aten.mul.Tensor, item, scale)
        for item, scale in zip((product, bias), scales, strict=True)
    )
    return convert(b, b.call(aten.add.Tensor, product, bias), dtype)


@_substitute(aten.linear.default)
def _empty_linear(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, _, bias = completed(args, 2, (None,))
    if not same(b.shape(x)[-1], 0):
        return NotImplemented
    if bias is not None:
        return b.call(aten.expand.default, bias, list(value.shape))
    return b.call(aten.full.default, list(value.shape), 0, dtype=value.dtype)


@_substitute(aten.cumprod.default)
def _running_product(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    """In log2(size) steps: each multiplies what is there by the same, moved on by as many places as it covers."""
    x, dim = args[:2]
    if not b.shape(x):
        return convert(b, x, value.dtype)
    dim %= len(b.shape(x))
    size = b.shape(x)[dim]
    if not is_static((size,)):
        return NotImplemented
    x = _widened(b, convert(b, x, value.dtype))
    shape = list(b.shape(x))
    moved = 1
    while moved < size:
        earlier = b.call(aten.slice.Tensor, x, dim, 0, size - moved)
        ones = b.call(aten.full.default, [*shape[:dim], moved, *shape[dim + 1 :]], 1, dtype=b.dtype(x))
        x = b.call(aten.mul.Tensor, x, b.call(aten.cat.default, [ones, earlier], dim))
        moved *= 2
    return convert(b, x, value.dtype)


# -- division ----------------------------------------------------------------------------------------------------------


@_substitute(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _rounded_division(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, y = args
    floored = b.call(aten.div.Tensor_mode, x, y, rounding_mode="floor")
    if value.dtype.is_floating_point:
        # The kernel leaves a rounding error; the limit lets it pass if it is rounded away.
        return b.call(aten.round.default, floored)
    rest = b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, floored, y))
    upwards = b.call(aten.logical_and.default, _is(b, aten.ne, rest), _differ_in_sign(b, x, y))
    return b.call(aten.add.Tensor, floored, convert(b, upwards, value.dtype))


@_substitute(aten.fmod.Tensor, aten.fmod.Scalar)
def _rest_of_integers(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, y = args
    if value.dtype == torch.uint8:
        return b.call(aten.fmod.Tensor, x, int(y) & 0xFF)
    if value.dtype.is_floating_point:
        return NotImplemented
    quotient = b.call(aten.div.Tensor_mode, x, y, rounding_mode="trunc")
    return b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, quotient, y))


@_substitute(aten.remainder.Tensor, aten.remainder.Scalar)
def _remainder(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, y = args
    if not isinstance(x, Node):
        return NotImplemented
    rest = b.call(aten.fmod.Tensor, x, y)
    other_side = b.call(aten.logical_and.default, _is(b, aten.ne, rest), _differ_in_sign(b, rest, y))
    return b.call(aten.where.self, other_side, b.call(aten.add.Tensor, rest, y), rest)


def _is(b: Builder, comparison: Any, x: Node) -> Node:
    """`x` compared with 0."""
    return b.call(comparison.Scalar, x, 0)  # type: ignore[no-any-return]


def _differ_in_sign(b: Builder, x: Node, y: Any) -> Node:
    below = _is(b, aten.lt, x)
    if isinstance(y, Node):
        return b.call(aten.logical_xor.default, below, _is(b, aten.lt, y))  # type: ignore[no-any-return]
    return b.call(aten.logical_not.default, below) if y < 0 else below


# -- powers and functions ----------------------------------------------------------------------------------------------


@_substitute(aten.pow.Tensor_Scalar)
def _power(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, exponent = args
    if value.dtype.is_floating_point:
        return b.call(aten.sqrt.default, x) if exponent == 0.5 else NotImplemented
    if exponent == 0:
        return b.call(aten.full.default, list(value.shape), 1, dtype=value.dtype)
    result = None
    for bit in range(int(exponent).bit_length()):
        x = b.call(aten.mul.Tensor, x, x) if bit else x
        if int(exponent) >> bit & 1:
            result = x if result is None else b.call(aten.mul.Tensor, result, x)
    return result


@_substitute(aten.pow.Scalar)
def _power_of_number(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    number, exponent = args
    if value.dtype.is_floating_point or number < 2 or number & (number - 1):
        return NotImplemented
    # A power of two is a shift: both are 0 where the bit leaves the type, and for negative exponents.
    places = b.call(aten.mul.Tensor, convert(b, exponent, value.dtype), number.bit_length() - 1)
    return b.call(aten.bitwise_left_shift.Tensor, b.constant(torch.tensor(1, dtype=value.dtype)), places)


@_substitute(aten.exp2.default)
def _power_of_two(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    return b.call(aten.pow.Scalar, 2.0, convert(b, args[0], value.dtype))


@_substitute(aten.sign.default)
def _sign(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    above, below = (convert(b, _is(b, side, args[0]), value.dtype) for side in (aten.gt, aten.lt))
    return b.call(aten.sub.Tensor, above, below)


@_substitute(aten.signbit.default)
def _sign_bit(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    # Of floats, no kernel can tell -0.0 and negative NaNs.
    return NotImplemented if b.dtype(args[0]).is_floating_point else _is(b, aten.lt, args[0])


@_substitute(aten.round.decimals)
def _round_decimals(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    decimals = kwargs.get("decimals", args[1] if len(args) > 1 else 0)
    steps = [aten.mul.Tensor, aten.div.Tensor] if decimals >= 0 else [aten.div.Tensor, aten.mul.Tensor]
    scale = b.constant(torch.tensor(10.0 ** abs(decimals), dtype=value.dtype))
    return b.call(steps[1], b.call(aten.round.default, b.call(steps[0], args[0], scale)), scale)


def _without_nan(form: OpOverload) -> Rule:
    """The smaller or larger of two, where NaN counts as absent."""

    def apply(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
        x, y = args
        chosen = b.call(form, x, y)
        if not value.dtype.is_floating_point:
            return chosen
        chosen = b.call(aten.where.self, b.call(aten.isnan.default, y), x, chosen)
        return b.call(aten.where.self, b.call(aten.isnan.default, x), y, chosen)

    return apply


SUBSTITUTES[aten.fmin.default] = _without_nan(aten.minimum.default)
SUBSTITUTES[aten.fmax.default] = _without_nan(aten.maximum.default)


@_substitute(aten.hypot.default)
def _hypotenuse(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if value.dtype == torch.float64:
        return NotImplemented  # the squares may overflow
    x, y = (convert(b, item, torch.float64) for item in args)
    total = b.call(aten.add.Tensor, b.call(aten.mul.Tensor, x, x), b.call(aten.mul.Tensor, y, y))
    return convert(b, b.call(aten.sqrt.default, total), value.dtype)


@_substitute(aten.add.Scalar)
def _or_true(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    if value.dtype != torch.bool:
        return NotImplemented
    return b.call(aten.logical_or.default, args[0], b.constant(torch.tensor(True))) if args[1] else args[0]


@_substitute(aten.sort.default, aten.sort.stable)
def _sort(b: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any) -> Value:
    x, dim, descending = completed(args, 1, (-1, False))
    if kwargs.get("stable"):
        return NotImplemented  # the kernel below may swap equal elements
    dim, descending = kwargs.get("dim", dim), kwargs.get("descending", descending)
    if not b.shape(x):
        return x, b.call(aten.full.default, [], 0, dtype=torch.int64)
    numbers = convert(b, x, torch.uint8) if b.dtype(x) == torch.bool else x
    result = b.call(aten.topk.default, numbers, b.shape(x)[dim], dim, descending, True)
    largest, places = (b.call(operator.getitem, result, number) for number in range(2))
    return convert(b, largest, b.dtype(x)), places
