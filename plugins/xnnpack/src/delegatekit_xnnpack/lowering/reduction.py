"""Reductions along axes, and what is built of them: softmax, variance, layer and group normalisation.

A mean is taken where the elements lie: axes that are stored last are summed by a product with a row of equal weights
(the fastest way through XNNPACK), others by a global average pool. No axis needs to move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import operators as ops
from ..arguments import argument, axes_of, axis_of, rank_of, shape_of
from ..graph import Value
from ..layout import Tensor
from ..operators import BinaryKind, Padding, PoolKind, UnaryKind
from .context import Lowering, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node

#: A matrix product adds one element after another: longer rows are summed in two steps, to lose less to rounding.
_ROW_LIMIT = 1024


def mean(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The mean over logical axes, which stay with size 1."""
    for start, stop in _stored_runs(x, axes):
        x = _mean_of_run(b, x, start, stop)
    return x


def total(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The sum over logical axes, which stay with size 1."""
    factor = 1.0
    for start, stop in _stored_runs(x, axes):
        count = math.prod(x.value.shape[start:stop])
        if _is_row(x, stop):
            x = _weighted_row_sum(b, x, start, stop, 1.0)
        else:
            x, factor = _mean_of_run(b, x, start, stop), factor * count
    return x if factor == 1.0 else b.binary(BinaryKind.MULTIPLY, x, b.scalar(factor))


def _stored_runs(x: Tensor, axes: Sequence[int]) -> list[tuple[int, int]]:
    """The stored axes to reduce as half-open ranges, from the last to the first; axes of size 1 join or vanish."""
    stored = x.value.shape
    reduced = {x.order[axis] for axis in axes}
    runs: list[tuple[int, int]] = []
    stop = len(stored)
    while stop > 0:
        if stored[stop - 1] == 1 or stop - 1 not in reduced:
            stop -= 1
            continue
        start = stop - 1
        while start > 0 and (start - 1 in reduced or stored[start - 1] == 1):
            start -= 1
        stop, end = start, stop
        while stored[start] == 1:
            start += 1
        runs.append((start, end))
    return runs


def _is_row(x: Tensor, stop: int) -> bool:
    """Whether nothing is stored behind a run that ends at `stop`."""
    return math.prod(x.value.shape[stop:]) == 1


def _mean_of_run(b: ProgramBuilder, x: Tensor, start: int, stop: int) -> Tensor:
    stored = x.value.shape
    if _is_row(x, stop):
        return _weighted_row_sum(b, x, start, stop, 1.0 / math.prod(stored[start:stop]))
    pooled = b.emit(ops.GlobalAveragePool(), b.reshaped(x.value, _as_image(stored, start, stop)))
    return _with_run_reduced(b, x, pooled, start, stop)


def _as_image(stored: Sequence[int], start: int, stop: int) -> tuple[int, int, int, int]:
    """The stored shape as (N, H, W, C) whose H and W are the run."""
    if len(stored) == 4 and (start, stop) == (1, 3):
        return (stored[0], stored[1], stored[2], stored[3])
    return (math.prod(stored[:start]), math.prod(stored[start:stop]), 1, math.prod(stored[stop:]))


def _weighted_row_sum(b: ProgramBuilder, x: Tensor, start: int, stop: int, weight: float) -> Tensor:
    stored = x.value.shape
    value = x.value
    count = math.prod(stored[start:stop])
    lengths = _row_lengths(count)
    for length in lengths:
        one_step = (*stored[:start], count)
        rows = b.reshaped(value, one_step if len(lengths) == 1 else (value.size // length, length))
        value = b.emit(ops.FullyConnected(), rows, b.filled((1, length), weight).value)
        weight = 1.0
    return _with_run_reduced(b, x, value, start, stop)


def _row_lengths(count: int) -> tuple[int, ...]:
    """The lengths of the rows in which `count` elements are summed: one row, or two steps of similar length."""
    if count <= _ROW_LIMIT:
        return (count,)
    divisor = next(size for size in range(math.isqrt(count), 0, -1) if count % size == 0)
    return (count,) if divisor == 1 else (count // divisor, divisor)


def _with_run_reduced(b: ProgramBuilder, x: Tensor, value: Value, start: int, stop: int) -> Tensor:
    stored = x.value.shape
    return Tensor(b.reshaped(value, (*stored[:start], *[1] * (stop - start), *stored[stop:])), x.order)


def _reduction_axes(node: Node) -> tuple[int, ...]:
    return axes_of(argument(node, "dim"), rank_of(argument(node, "self")))


def _mean(b: ProgramBuilder, node: Node) -> Tensor:
    return b.reshape(mean(b, b.tensor(argument(node, "self")), _reduction_axes(node)), shape_of(node))


def _sum(b: ProgramBuilder, node: Node) -> Tensor:
    return b.reshape(total(b, b.tensor(argument(node, "self")), _reduction_axes(node)), shape_of(node))


def reduced_count(node: Node) -> int:
    """How many elements each result of a reduction sees."""
    shape = shape_of(argument(node, "self"))
    return math.prod(shape[axis] for axis in _reduction_axes(node))


def variance_correction(node: Node) -> float:
    """What var.correction subtracts from the number of elements."""
    correction = argument(node, "correction")
    return 1.0 if correction is None else float(correction)


def _variance(b: ProgramBuilder, node: Node) -> Tensor:
    axes, count = _reduction_axes(node), reduced_count(node)
    _, squared = _centred(b, b.tensor(argument(node, "self")), axes)
    correction = variance_correction(node)
    result = mean(b, squared, axes)
    if correction:
        result = b.binary(BinaryKind.MULTIPLY, result, b.scalar(count / (count - correction)))
    return b.reshape(result, shape_of(node))


def _centred(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """x less its mean, and the squares of that."""
    centred = b.binary(BinaryKind.SUBTRACT, x, mean(b, x, axes))
    return centred, b.unary(UnaryKind.SQUARE, centred)


# -- extremes --------------------------------------------------------------------------------------------------------


def _extreme(*, largest: bool) -> Lowering:
    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        x = b.tensor(argument(node, "self"))
        x = x if largest else b.unary(UnaryKind.NEGATE, x)
        for start, stop in _stored_runs(x, _reduction_axes(node)):
            x = _maximum_of_run(b, x, start, stop)
        return b.reshape(x if largest else b.unary(UnaryKind.NEGATE, x), shape_of(node))

    return lower


def _maximum_of_run(b: ProgramBuilder, x: Tensor, start: int, stop: int) -> Tensor:
    stored = x.value.shape
    outer, count, inner = math.prod(stored[:start]), math.prod(stored[start:stop]), math.prod(stored[stop:])
    rows = b.reshaped(x.value, (outer, count, inner))
    if inner == 1:
        # Pooling works along channels: rows become columns first.
        rows, outer, inner = b.transposed(rows, (2, 1, 0)), 1, outer
    operator = ops.Pool(PoolKind.MAXIMUM, Padding(), (count, 1), (count, 1))
    return _with_run_reduced(b, x, b.emit(operator, b.reshaped(rows, (outer, count, 1, inner))), start, stop)


# -- softmax and normalisation ---------------------------------------------------------------------------------------


def _softmax(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    axis = axis_of(argument(node, "dim"), len(x.shape))
    last = x.order[axis]
    # XNNPACK normalises what is stored last.
    order = tuple(len(x.order) - 1 if at == last else at - (at > last) for at in x.order)
    value = b.stored(x, order)
    return Tensor(b.emit(ops.Unary(UnaryKind.SOFTMAX), value), order)


def _layer_norm(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "input"))
    rank = len(x.shape)
    axes = range(rank - len(argument(node, "normalized_shape")), rank)
    result = normalised(b, x, axes, argument(node, "eps"))
    return _scale_and_shift(b, result, argument(node, "weight"), argument(node, "bias"))


def normalised(b: ProgramBuilder, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over logical axes."""
    centred, squared = _centred(b, x, axes)
    variance = b.binary(BinaryKind.ADD, mean(b, squared, axes), b.scalar(epsilon))
    return b.binary(BinaryKind.MULTIPLY, centred, b.unary(UnaryKind.RECIPROCAL_SQUARE_ROOT, variance))


def _group_norm(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "input"))
    groups, rank = argument(node, "num_groups"), len(x.shape)
    batch, channels, *rest = x.shape
    grouped = b.reshape(x, (batch, groups, channels // groups, math.prod(rest)))
    result = b.reshape(normalised(b, grouped, (2, 3), argument(node, "eps")), x.shape)
    channel_shape = (channels, *[1] * (rank - 2))
    return _scale_and_shift(b, result, argument(node, "weight"), argument(node, "bias"), channel_shape)


def _scale_and_shift(
    b: ProgramBuilder, x: Tensor, weight: Node | None, bias: Node | None, shape: tuple[int, ...] | None = None
) -> Tensor:
    """x * weight + bias, either may be missing; `shape` is how they broadcast if not as they are."""
    for kind, parameter in ((BinaryKind.MULTIPLY, weight), (BinaryKind.ADD, bias)):
        if parameter is not None:
            operand = b.tensor(parameter)
            x = b.binary(kind, x, operand if shape is None else b.reshape(operand, shape))
    return x


LOWERINGS: dict[str, Lowering] = {
    "aten.mean.dim": _mean,
    "aten.sum.dim_IntList": _sum,
    "aten.var.correction": _variance,
    "aten.amax.default": _extreme(largest=True),
    "aten.amin.default": _extreme(largest=False),
    "aten._softmax.default": _softmax,
    "aten.layer_norm.default": _layer_norm,
    "aten.group_norm.default": _group_norm,
}
