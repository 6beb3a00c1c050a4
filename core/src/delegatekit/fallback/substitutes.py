"""Replacements for operators that the stock runtime lacks, or computes differently from PyTorch.

Only nodes that no backend takes and the runtime cannot run come here, after partitioning: backends see the operator
itself. The faults of each kernel are described by the limits in `kernels.py`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..edge.builder import EdgeBuilder, Rule, Value
from ..edge.draft import Draft
from ..edge.rules import Family, RuleTable
from ..edge.rules.writing import NARROW_FLOATS, convert, view
from ..edge.sizes import is_static, same
from .rows import as_rows
from .volumes import convolution_3d

aten = torch.ops.aten

_FAMILY = Family("substitutes")


def _zero_dims_as_one(b: EdgeBuilder, x: Node, call: Callable[[Node], Node], value: Any) -> Node:
    """The result of an operator along dim 0 on a tensor of no dimensions."""
    return view(b, call(view(b, x, (1,))), tuple(value.shape))


# -- narrow floats: kernels that sum up in the narrow type ------------------------------------------------------------


def _in_float32(target: OpOverload) -> Rule:
    """The operator in float32, its results converted back to their dtype."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        value = call.value
        if not any(isinstance(item, Node) and b.dtype(item) in NARROW_FLOATS for item in call.args):
            return NotImplemented
        result = b.call(target, *(_widened(b, item) for item in call.args), **call.kwargs)
        if isinstance(value, torch.Tensor):
            return convert(b, result, value.dtype)
        parts = [b.call(operator.getitem, result, number) for number in range(len(value))]
        return tuple(convert(b, part, item.dtype) for part, item in zip(parts, value, strict=True))

    return apply


def _widened(b: EdgeBuilder, item: Any) -> Any:
    return convert(b, item, torch.float32) if isinstance(item, Node) and b.dtype(item) in NARROW_FLOATS else item


for _target in (
    aten.var.correction,
    aten.var_mean.correction,
    aten.native_layer_norm.default,
    aten.avg_pool2d.default,
):
    _FAMILY.rule(_target)(_in_float32(_target))


@_FAMILY.rule(aten.convolution.default)
def _convolution(b: EdgeBuilder, call: Draft) -> Value:
    widened = _WIDE_CONVOLUTION(b, call)
    return convolution_3d(b, call) if widened is NotImplemented else widened


_WIDE_CONVOLUTION = _in_float32(aten.convolution.default)


@_FAMILY.rule(aten.native_group_norm.default)
def _group_norm(b: EdgeBuilder, call: Draft) -> Value:
    x, weight, bias, epsilon = call["input", "weight", "bias", "eps"]
    batch, channels, positions, groups = call["N", "C", "HxW", "group"]
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


@_FAMILY.rule(aten.cumsum.default)
def _running_sum(b: EdgeBuilder, call: Draft) -> Value:
    x, dim, value = call["self"], call["dim"], call.value
    if not b.shape(x):
        return _zero_dims_as_one(b, x, lambda one: b.call(aten.cumsum.default, one, 0, **call.kwargs), value)
    if value.dtype not in NARROW_FLOATS:
        return NotImplemented
    x = convert(b, convert(b, x, value.dtype), torch.float32)
    return convert(b, b.call(aten.cumsum.default, x, dim), value.dtype)


# -- sums and products -------------------------------------------------------------------------------------------------


@_FAMILY.rule(aten.sum.dim_IntList)
def _sum(b: EdgeBuilder, call: Draft) -> Value:
    x, dims, keepdim = call["self", "dim", "keepdim"]
    rank = len(b.shape(x))
    if not rank:
        return convert(b, x, call.value.dtype)
    # Along one dim, the kernel sums up in float32. Beside a second dim of size 1 it does not.
    dim = (dims[0] if dims else 0) % rank
    beside = b.call(aten.unsqueeze.default, x, dim + 1)
    dtype = {} if call["dtype"] is None else {"dtype": call["dtype"]}
    result = b.call(aten.sum.dim_IntList, beside, [dim, dim + 1], keepdim, **dtype)
    return b.call(aten.squeeze.dims, result, [dim + 1]) if keepdim else result


@_FAMILY.rule(aten.mm.default, aten.bmm.default)
def _empty_product(b: EdgeBuilder, call: Draft) -> Value:
    if not same(b.shape(call["self"])[-1], 0):
        return NotImplemented
    return b.call(aten.full.default, list(call.value.shape), 0, dtype=call.value.dtype)


@_FAMILY.rule(aten.addmm.default)
def _product_and_sum(b: EdgeBuilder, call: Draft) -> Value:
    bias, x, y = call["self", "mat1", "mat2"]
    scales = call["alpha", "beta"]
    dtype = call.value.dtype
    if dtype in NARROW_FLOATS and scales != (1, 1):
        bias, x, y = (convert(b, item, torch.float32) for item in (bias, x, y))
    product = b.call(aten.mm.default, x, y)
    product, bias = (
        item if scale == 1 else b.call(aten.mul.Tensor, item, scale)
        for item, scale in zip((product, bias), scales, strict=True)
    )
    return convert(b, b.call(aten.add.Tensor, product, bias), dtype)


@_FAMILY.rule(aten.linear.default)
def _empty_linear(b: EdgeBuilder, call: Draft) -> Value:
    x, bias, value = call["input"], call["bias"], call.value
    if not same(b.shape(x)[-1], 0):
        return NotImplemented
    if bias is not None:
        return b.call(aten.expand.default, bias, list(value.shape))
    return b.call(aten.full.default, list(value.shape), 0, dtype=value.dtype)


@_FAMILY.rule(aten.cumprod.default)
def _running_product(b: EdgeBuilder, call: Draft) -> Value:
    """A prefix product in log2(size) steps: each multiplies by the values shifted by as many places as they cover."""
    x, dim, value = call["self"], call["dim"], call.value
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


@_FAMILY.rule(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _rounded_division(b: EdgeBuilder, call: Draft) -> Value:
    x, y, value = call["self"], call["other"], call.value
    floored = b.call(aten.div.Tensor_mode, x, y, rounding_mode="floor")
    if value.dtype.is_floating_point:
        # The kernel leaves a rounding error; the limit accepts it if it is rounded away.
        return b.call(aten.round.default, floored)
    rest = b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, floored, y))
    upwards = b.call(aten.logical_and.default, _is(b, aten.ne, rest), _differ_in_sign(b, x, y))
    return b.call(aten.add.Tensor, floored, convert(b, upwards, value.dtype))


@_FAMILY.rule(aten.fmod.Tensor, aten.fmod.Scalar)
def _rest_of_integers(b: EdgeBuilder, call: Draft) -> Value:
    x, y, value = call["self"], call["other"], call.value
    if value.dtype == torch.uint8:
        return b.call(aten.fmod.Tensor, x, int(y) & 0xFF)
    if value.dtype.is_floating_point:
        return NotImplemented
    quotient = b.call(aten.div.Tensor_mode, x, y, rounding_mode="trunc")
    return b.call(aten.sub.Tensor, x, b.call(aten.mul.Tensor, quotient, y))


@_FAMILY.rule(aten.remainder.Tensor, aten.remainder.Scalar)
def _remainder(b: EdgeBuilder, call: Draft) -> Value:
    x, y = call["self", "other"]
    if not isinstance(x, Node):
        return NotImplemented
    rest = b.call(aten.fmod.Tensor, x, y)
    other_side = b.call(aten.logical_and.default, _is(b, aten.ne, rest), _differ_in_sign(b, rest, y))
    return b.call(aten.where.self, other_side, b.call(aten.add.Tensor, rest, y), rest)


def _is(b: EdgeBuilder, comparison: Any, x: Node) -> Node:
    """`x` compared with 0."""
    return b.call(comparison.Scalar, x, 0)  # type: ignore[no-any-return]


def _differ_in_sign(b: EdgeBuilder, x: Node, y: Any) -> Node:
    below = _is(b, aten.lt, x)
    if isinstance(y, Node):
        return b.call(aten.logical_xor.default, below, _is(b, aten.lt, y))  # type: ignore[no-any-return]
    return b.call(aten.logical_not.default, below) if y < 0 else below


# -- powers and functions ----------------------------------------------------------------------------------------------


@_FAMILY.rule(aten.pow.Tensor_Scalar)
def _power(b: EdgeBuilder, call: Draft) -> Value:
    x, exponent, value = call["self"], call["exponent"], call.value
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


@_FAMILY.rule(aten.pow.Scalar)
def _power_of_number(b: EdgeBuilder, call: Draft) -> Value:
    number, exponent, value = call["self"], call["exponent"], call.value
    if value.dtype.is_floating_point or number < 2 or number & (number - 1):
        return NotImplemented
    # A power of two is a shift: both are 0 if the bit leaves the type, and for negative exponents.
    places = b.call(aten.mul.Tensor, convert(b, exponent, value.dtype), number.bit_length() - 1)
    return b.call(aten.bitwise_left_shift.Tensor, b.constant(torch.tensor(1, dtype=value.dtype)), places)


@_FAMILY.rule(aten.exp2.default)
def _power_of_two(b: EdgeBuilder, call: Draft) -> Value:
    return b.call(aten.pow.Scalar, 2.0, convert(b, call["self"], call.value.dtype))


@_FAMILY.rule(aten.sign.default)
def _sign(b: EdgeBuilder, call: Draft) -> Value:
    above, below = (convert(b, _is(b, side, call["self"]), call.value.dtype) for side in (aten.gt, aten.lt))
    return b.call(aten.sub.Tensor, above, below)


@_FAMILY.rule(aten.signbit.default)
def _sign_bit(b: EdgeBuilder, call: Draft) -> Value:
    # For floats, no kernel can identify -0.0 and negative NaNs.
    return NotImplemented if b.dtype(call["self"]).is_floating_point else _is(b, aten.lt, call["self"])


@_FAMILY.rule(aten.round.decimals)
def _round_decimals(b: EdgeBuilder, call: Draft) -> Value:
    decimals = call["decimals"]
    steps = [aten.mul.Tensor, aten.div.Tensor] if decimals >= 0 else [aten.div.Tensor, aten.mul.Tensor]
    scale = b.constant(torch.tensor(10.0 ** abs(decimals), dtype=call.value.dtype))
    return b.call(steps[1], b.call(aten.round.default, b.call(steps[0], call["self"], scale)), scale)


def _without_nan(form: OpOverload) -> Rule:
    """The smaller or larger of two, where NaN counts as absent."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        x, y = call["self", "other"]
        chosen = b.call(form, x, y)
        if not call.value.dtype.is_floating_point:
            return chosen
        chosen = b.call(aten.where.self, b.call(aten.isnan.default, y), x, chosen)
        return b.call(aten.where.self, b.call(aten.isnan.default, x), y, chosen)

    return apply


_FAMILY.rule(aten.fmin.default)(_without_nan(aten.minimum.default))
_FAMILY.rule(aten.fmax.default)(_without_nan(aten.maximum.default))


@_FAMILY.rule(aten.hypot.default)
def _hypotenuse(b: EdgeBuilder, call: Draft) -> Value:
    value = call.value
    if value.dtype == torch.float64:
        return NotImplemented  # the squares may overflow
    x, y = (convert(b, item, torch.float64) for item in call["self", "other"])
    total = b.call(aten.add.Tensor, b.call(aten.mul.Tensor, x, x), b.call(aten.mul.Tensor, y, y))
    # Infinite if either side is, also next to NaN.
    infinite = b.call(aten.logical_or.default, b.call(aten.isinf.default, x), b.call(aten.isinf.default, y))
    infinity = b.constant(torch.tensor(math.inf, dtype=torch.float64))
    return convert(b, b.call(aten.where.self, infinite, infinity, b.call(aten.sqrt.default, total)), value.dtype)


@_FAMILY.rule(aten.add.Scalar)
def _or_true(b: EdgeBuilder, call: Draft) -> Value:
    if call.value.dtype != torch.bool:
        return NotImplemented
    x, added = call["self", "other"]
    return b.call(aten.logical_or.default, x, b.constant(torch.tensor(True))) if added else x


@_FAMILY.rule(aten.sort.default, aten.sort.stable)
def _sort(b: EdgeBuilder, call: Draft) -> Value:
    x, dim, descending = call["self", "dim", "descending"]
    if not b.shape(x):
        return x, b.call(aten.full.default, [], 0, dtype=torch.int64)
    numbers, size = convert(b, x, torch.uint8) if b.dtype(x) == torch.bool else x, b.shape(x)[dim]
    if call.get("stable") and not is_static((size,)):
        return NotImplemented
    result = b.call(aten.topk.default, numbers, size, dim, descending, True)
    ordered, places = (b.call(operator.getitem, result, number) for number in range(2))
    if not call.get("stable") or size < 2:
        return convert(b, ordered, b.dtype(x)), places
    # The kernel may swap equal elements: their places are sorted once more, within each run of them.
    before, after = (b.call(aten.slice.Tensor, ordered, dim, first, size - 1 + first) for first in range(2))
    starts = b.call(aten.ne.Tensor, before, after)
    if b.dtype(x).is_floating_point:  # NaNs are one run
        nans = b.call(aten.logical_and.default, *(b.call(aten.isnan.default, side) for side in (before, after)))
        starts = b.call(aten.logical_and.default, starts, b.call(aten.logical_not.default, nans))
    runs = b.call(aten.cumsum.default, convert(b, starts, torch.int64), dim)
    zero, count = (b.constant(torch.tensor(number)) for number in (0, size))
    first = b.call(aten.slice.Tensor, b.call(aten.mul.Tensor, runs, zero), dim, 0, 1)
    offsets = b.call(aten.mul.Tensor, b.call(aten.cat.default, [first, runs], dim), count)
    keys = b.call(aten.topk.default, b.call(aten.add.Tensor, offsets, places), size, dim, False, True)
    places = b.call(aten.sub.Tensor, b.call(operator.getitem, keys, 0), offsets)
    return b.call(aten.gather.default, x, dim, places), places


_FAMILY.rule(aten.index_put.default)(as_rows)

#: Replacement rules by operator. A rule may return NotImplemented: then PyTorch's decomposition is tried.
SUBSTITUTES: Final = RuleTable([_FAMILY])
