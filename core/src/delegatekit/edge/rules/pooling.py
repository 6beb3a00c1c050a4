"""Pooling: windows in one or three dimensions as windows in two, adaptive ones, and unused indices."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from ..builder import EdgeBuilder, Rule, Value
from ..draft import Draft
from ..sizes import is_static, same_shape
from .table import Family
from .writing import per_dim, slice_dim, view

aten = torch.ops.aten

POOLING = Family("pooling")

# -- windows of known sizes ------------------------------------------------------------------------------------------


def _window(call: Draft, names: Sequence[str], dims: int) -> dict[str, Any]:
    """The settings of a pooling operator by name, each size a list of `dims` ints."""
    given = {"dilation": 1, "count_include_pad": True, "divisor_override": None} | {name: call[name] for name in names}
    given["stride"] = given["stride"] or given["kernel_size"]
    lists = {"kernel_size", "stride", "padding", "dilation"}
    return {name: per_dim(item, dims) if name in lists else item for name, item in given.items()}


_AVERAGE = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
_LARGEST = ("kernel_size", "stride", "padding", "dilation", "ceil_mode")


def _average(b: EdgeBuilder, x: Node, s: dict[str, Any], axes: slice) -> Node:
    windows = [s[name][axes] for name in ("kernel_size", "stride", "padding")]
    return b.call(  # type: ignore[no-any-return]
        aten.avg_pool2d.default, x, *windows, s["ceil_mode"], s["count_include_pad"], s["divisor_override"]
    )


@POOLING.rule(aten.avg_pool1d.default)
def _average_1d(b: EdgeBuilder, call: Draft) -> Value:
    s = _window(call, _AVERAGE[:5], 1)
    for name, neutral in (("kernel_size", 1), ("stride", 1), ("padding", 0)):
        s[name] = [neutral, *s[name]]
    wide = b.call(aten.unsqueeze.default, call["self"], -2)
    return b.call(aten.squeeze.dims, _average(b, wide, s, slice(None)), [-2])


@POOLING.rule(aten.avg_pool3d.default)
def _average_3d(b: EdgeBuilder, call: Draft) -> Value:
    """Planes first, then depth. A factor per place corrects for elements beyond the edge that must not count."""
    s = _window(call, _AVERAGE, 3)
    x = call["self"]
    # Averages of integers are truncated once, not twice.
    if not is_static(b.shape(x)) or not b.dtype(x).is_floating_point:
        return NotImplemented
    factor: torch.Tensor | None = None
    sticks_out = s["ceil_mode"] or (any(s["padding"]) and not s["count_include_pad"])
    if sticks_out or s["divisor_override"] is not None:
        axes = [_divisors(size, axis, s) for axis, size in enumerate(b.shape(x)[-3:])]
        pads = [amount for axis in (2, 1, 0) for amount in (s["padding"][axis], axes[axis][1])]
        x = b.call(aten.constant_pad_nd.default, x, pads, 0.0)
        divisors = torch.einsum("i,j,k->ijk", *(counts for counts, _ in axes))
        if s["divisor_override"] is not None:
            divisors = torch.tensor(float(s["divisor_override"]), dtype=torch.float64)
        factor = (math.prod(s["kernel_size"]) / divisors).to(b.dtype(x))
        s = {**s, "padding": [0, 0, 0], "ceil_mode": False, "divisor_override": None}

    def pool(x: Node, axes: slice) -> Node:
        if axes.start == 1:
            return _average(b, x, s, axes)
        depth = {**s, **{name: [s[name][0], neutral] for name, neutral in _NEUTRAL.items() if name in s}}
        return _average(b, x, depth, slice(None))

    result = _planes_then_depth(b, x, pool)
    return result if factor is None else b.call(aten.mul.Tensor, result, b.constant(factor))


def _divisors(size: int, axis: int, s: dict[str, Any]) -> tuple[torch.Tensor, int]:
    """The number of elements of each window along an axis; and the padding after it that the last window needs."""
    kernel, stride, padding = (s[name][axis] for name in ("kernel_size", "stride", "padding"))
    places = size + 2 * padding - kernel
    count = (-(-places // stride) if s["ceil_mode"] else places // stride) + 1
    if s["ceil_mode"] and (count - 1) * stride >= size + padding:
        count -= 1  # a window must begin within the input or the padding before it
    first = torch.arange(count, dtype=torch.float64) * stride - padding
    within = (0, size) if not s["count_include_pad"] else (-padding, size + padding)
    counts = (first + kernel).clamp(max=within[1]) - first.clamp(min=within[0])
    return counts, max(0, (count - 1) * stride + kernel - size - padding)


@POOLING.rule(aten.max_pool3d.default)
def _largest_3d(b: EdgeBuilder, call: Draft) -> Value:
    s = _window(call, _LARGEST, 3)
    if not is_static(b.shape(call["self"])):
        return NotImplemented

    def pool(x: Node, axes: slice) -> Node:
        names = ("kernel_size", "stride", "padding", "dilation")
        windows = [s[name][axes] if axes.start == 1 else [s[name][0], _NEUTRAL[name]] for name in names]
        return b.call(aten.max_pool2d.default, x, *windows, s["ceil_mode"])  # type: ignore[no-any-return]

    return _planes_then_depth(b, call["self"], pool)


_NEUTRAL = {"kernel_size": 1, "stride": 1, "padding": 0, "dilation": 1}


def _planes_then_depth(b: EdgeBuilder, x: Node, pool: Any) -> Node:
    """Pool (..., D, H, W) over H and W, then over D: two poolings in two dimensions."""
    *lead, depth, height, width = b.shape(x)
    planes = pool(view(b, x, (math.prod(lead), depth, height, width)), slice(1, 3))
    height, width = b.shape(planes)[-2:]
    columns = pool(view(b, planes, (math.prod(lead), 1, depth, height * width)), slice(0, 1))
    return view(b, columns, (*lead, b.shape(columns)[-2], height, width))


@POOLING.rule(aten.adaptive_avg_pool1d.default)
def _adaptive_average_1d(b: EdgeBuilder, call: Draft) -> Value:
    x, (size,) = call["self"], per_dim(call["output_size"], 1)
    if same_shape((size,), b.shape(x)[-1:]):
        return x
    if size == 1:
        return b.call(aten.mean.dim, x, [-1], True)
    wide = b.call(aten.unsqueeze.default, x, -2)
    batched = wide if len(b.shape(x)) > 2 else b.call(aten.unsqueeze.default, wide, 0)
    pooled = b.call(aten._adaptive_avg_pool2d.default, batched, [1, size])
    return b.call(aten.squeeze.dims, pooled, [-2] if batched is wide else [0, -2])


@POOLING.rule(aten.adaptive_avg_pool3d.default, aten._adaptive_avg_pool3d.default)
def _adaptive_average_3d(b: EdgeBuilder, call: Draft) -> Value:
    x, size = call["self"], per_dim(call["output_size"], 3)
    if not is_static((*b.shape(x), *size)):
        return NotImplemented
    if size == [1, 1, 1]:
        return b.call(aten.mean.dim, x, [-1, -2, -3], True)
    *lead, depth, height, width = b.shape(x)
    planes = b.call(aten._adaptive_avg_pool2d.default, view(b, x, (math.prod(lead), depth, height, width)), size[1:])
    columns = view(b, planes, (math.prod(lead), 1, depth, size[1] * size[2]))
    result = b.call(aten._adaptive_avg_pool2d.default, columns, [size[0], size[1] * size[2]])
    return view(b, result, (*lead, *size))


# -- maxima whose indices are not used --- -----------------------------------------------------------------------------

#: The limit of places with an adaptive window of their own: beyond it, the graph grows too large.
_PIECES = 16


def _without_indices(*targets: OpOverload) -> Callable[[Rule], Rule]:
    """Add a rule for operators whose second result, the indices of the maxima, is unused.

    The rule returns the values alone. A decomposition may request indices that it then drops: it is left alone.
    """

    def register(function: Rule) -> Rule:
        def apply(b: EdgeBuilder, call: Draft) -> Value:
            if b.origin is None or b.origin.target is not call.target:
                return NotImplemented
            readers = b.origin.users
            if not all(user.target is operator.getitem and (user.args[1] == 0 or not user.users) for user in readers):
                return NotImplemented
            result = function(b, call)
            return NotImplemented if result is NotImplemented else (result, None)

        POOLING.rule(*targets)(apply)
        return function

    return register


@_without_indices(aten.max_pool2d_with_indices.default)
def _largest_2d(b: EdgeBuilder, call: Draft) -> Value:
    # If no backend has the pooling without indices, the runtime has it with them.
    if aten.max_pool2d.default not in b.keep:
        return NotImplemented
    return b.call(aten.max_pool2d.default, *call.args, **call.kwargs)


@_without_indices(aten.max_pool3d_with_indices.default)
def _values_3d(b: EdgeBuilder, call: Draft) -> Value:
    if not is_static(b.shape(call["self"])):
        return NotImplemented
    return b.call(aten.max_pool3d.default, *call.args, **call.kwargs)


@_without_indices(aten.max.dim)
def _largest_along(b: EdgeBuilder, call: Draft) -> Value:
    return _extreme_along(b, aten.amax.default, call)


@_without_indices(aten.min.dim)
def _smallest_along(b: EdgeBuilder, call: Draft) -> Value:
    return _extreme_along(b, aten.amin.default, call)


def _extreme_along(b: EdgeBuilder, target: OpOverload, call: Draft) -> Value:
    x, dim, keepdim = call["self", "dim", "keepdim"]
    return b.call(target, x, [dim], keepdim) if b.dtype(x).is_floating_point else NotImplemented


def _adaptive_largest(dims: int) -> Rule:
    """Windows of equal size are regular pooling; others are computed one by one, axis by axis."""

    def apply(b: EdgeBuilder, call: Draft) -> Value:
        x = call["self"]
        before, after = b.shape(x)[-dims:], per_dim(call["output_size"], dims)
        if not is_static((*before, *after)) or 0 in (*before, *after):
            return NotImplemented
        pairs = list(zip(before, after, strict=True))
        if all(old % new == 0 for old, new in pairs):
            return _pooled_evenly(b, x, [old // new for old, new in pairs])
        if any(new > _PIECES and new != old for old, new in pairs):
            return NotImplemented
        for axis, (old, new) in enumerate(pairs, -dims):
            if old != new:
                x = _piecewise(b, x, axis, old, new)
        return x

    return apply


for _dims, _target in enumerate(
    (aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default), 1
):
    _without_indices(_target)(_adaptive_largest(_dims))


def _pooled_evenly(b: EdgeBuilder, x: Node, window: list[int]) -> Value:
    if len(window) == 3:
        return b.call(aten.max_pool3d.default, x, window, window)
    if aten.max_pool2d.default not in b.keep:
        return NotImplemented
    if len(window) == 2:
        return b.call(aten.max_pool2d.default, x, window, window)
    wide = b.call(aten.unsqueeze.default, x, -2)
    return b.call(aten.squeeze.dims, b.call(aten.max_pool2d.default, wide, [1, *window], [1, *window]), [-2])


def _piecewise(b: EdgeBuilder, x: Node, axis: int, old: int, new: int) -> Node:
    windows = [(place * old // new, -(-(place + 1) * old // new)) for place in range(new)]
    pieces = [b.call(aten.amax.default, slice_dim(b, x, axis, *window), [axis], True) for window in windows]
    return pieces[0] if new == 1 else b.call(aten.cat.default, pieces, axis)  # type: ignore[no-any-return]
