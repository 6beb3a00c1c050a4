"""Reductions along axes, and operators composed of them: softmax, variance, layer and group normalization.

A mean is computed in the storage order: axes that are stored last are summed by a product with a row of equal weights
(the fastest way in XNNPACK), others by a global average pool. No axis needs to move.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.layout import inverse
from delegatekit_toolkit.sizes import Dynamic, Size, dynamic_count, largest
from delegatekit_toolkit.support import Constraint, Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir import operators as ops
from ..ir.graph import Value
from ..ir.joined import reshape_obstacle
from ..ir.layout import Tensor
from ..ir.operators import BinaryKind, Padding, PoolKind, UnaryKind
from ..ir.types import MAX_RANK, Shape
from .common import EXPONENTIAL_NAN, LARGEST, LOGARITHM_ENDS, POOLED_NAN, not_narrowed, not_scalar
from .precision import always
from .program import Lower, ProgramBuilder

#: Elements of a row that do not justify two steps for its maximum, and those that XNNPACK compares at once.
_SHORT_ROW, _VECTOR = 256, 8
#: A matrix product adds one element after another: longer rows are summed in two steps, which reduces rounding errors.
_ROW_LIMIT = 1024


def mean(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The mean over logical axes, which are kept with size 1."""
    return b.reshape(_mean(b, x, axes), tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)))


def _mean(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The mean over logical axes, which are kept with size 1, perhaps with another axis of size 1 in front."""
    runs = _stored_runs(x, axes)
    if not _are_reshaped(x, runs):
        return _mean_of_pairs(b, x, axes)
    for start, stop in runs:
        x = _mean_of_run(b, x, start, stop)
    return x


def _are_reshaped(x: Tensor, runs: list[tuple[int, int]]) -> bool:
    """True if runs can be reshaped as their reduction needs: a reshape allows one size that changes."""
    stored = x.value.shape
    last_axis = [(len(stored) - 1, len(stored))]
    return dynamic_count(stored) < 2 or not runs or (runs == last_axis and not isinstance(stored[-1], Dynamic))


def _mean_of_pairs(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The mean by global average pools over two axes each. The result may have additional axes of size 1 in front."""
    reduced = [axis for axis in axes if x.shape[axis] != 1]
    kept = [axis for axis in range(len(x.shape)) if axis not in reduced]
    # An odd axis needs a partner, and an axis must remain after the pair.
    lifts = len(reduced) % 2 + (not kept)
    for _ in range(lifts):
        x = b.lifted(x)
    reduced, kept = [axis + lifts for axis in reduced], [*range(lifts), *(axis + lifts for axis in kept)]
    if len(reduced) % 2:
        reduced.append(kept.pop(0))
    kept.sort(key=lambda axis: x.order[axis])
    while reduced:
        pair, reduced = reduced[-2:], reduced[:-2]
        order = inverse([*kept[:-1], *reduced, *pair, kept[-1]])
        x = Tensor(b.emit(ops.GlobalAveragePool(), b.stored(x, order)), order)
        kept = [*kept[:-1], *pair, kept[-1]]
    return x


def total(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The sum over logical axes of known sizes, which are kept with size 1."""
    factor = 1.0
    runs = _stored_runs(x, axes)
    if not _are_reshaped(x, runs):
        count = math.prod(x.shape[axis] for axis in axes)
        return b.binary(BinaryKind.MULTIPLY, mean(b, x, axes), b.scalar(largest(count)))
    for start, stop in runs:
        count = math.prod(x.value.shape[start:stop])
        if _is_row(x, stop):
            x = _weighted_row_sum(b, x, start, stop, 1.0)
        else:
            x, factor = _mean_of_run(b, x, start, stop), factor * largest(count)
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
    """True if nothing is stored after a run that ends at `stop`."""
    return math.prod(x.value.shape[stop:]) == 1


def _mean_of_run(b: ProgramBuilder, x: Tensor, start: int, stop: int) -> Tensor:
    stored = x.value.shape
    count = math.prod(stored[start:stop])
    if _is_row(x, stop) and not isinstance(count, Dynamic):
        return _weighted_row_sum(b, x, start, stop, 1.0 / count)
    pooled = b.emit(ops.GlobalAveragePool(), b.reshaped(x.value, _as_image(stored, start, stop)))
    return _with_run_reduced(b, x, pooled, start, stop)


def _as_image(stored: Shape, start: int, stop: int) -> Shape:
    """The stored shape as (N, H, W, C) whose H and W are the run."""
    if len(stored) == 4 and (start, stop) == (1, 3):
        return stored
    return (math.prod(stored[:start]), math.prod(stored[start:stop]), 1, math.prod(stored[stop:]))


def _weighted_row_sum(b: ProgramBuilder, x: Tensor, start: int, stop: int, weight: float) -> Tensor:
    stored = x.value.shape
    value = x.value
    count = largest(math.prod(stored[start:stop]))
    # A sum in two steps could not be reshaped back.
    lengths = _row_lengths(count) if dynamic_count(stored) < 2 else (count,)
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


# -- means and sums ----------------------------------------------------------------------------------------------------


def reducible(*, counted: bool = False, averaged: bool = False) -> Constraint:
    """Constraint: the axes to reduce can be brought where XNNPACK reduces them.

    `counted`: the number of elements must not change; `averaged`: they are reduced by means.
    """

    def check(call: Call) -> str | None:
        shape, reduced = shape_of(call["self"]), reduced_sizes(call)
        if counted and dynamic_count(reduced):
            return f"a reduction over {math.prod(reduced)} elements, a number that changes from call to call"
        return _pairs_obstacle(shape, len(reduced)) if averaged else _pools_obstacle(shape)

    check.__doc__ = (
        "The number of reduced elements does not change, and i" if counted else "I"
    ) + f"f several sizes change, there are at most {MAX_RANK - 1 if averaged else 4} axes."
    return check


def _pairs_obstacle(shape: Shape, reduced: int) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) + reduced % 2 <= MAX_RANK - (reduced == len(shape)):
        return None
    return f"a mean of {len(shape)} axes, several of which change: XNNPACK reduces them in pairs"


def _pools_obstacle(shape: Shape) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) <= 4:
        return None
    return f"a maximum of {len(shape)} axes, several of which change: XNNPACK pools feature maps"


def _mean_of_call(b: ProgramBuilder, call: Call) -> Tensor:
    return b.reshape(_mean(b, b.tensor(call["self"]), reduced_axes(call)), shape_of(call.result))


def _sum(b: ProgramBuilder, call: Call) -> Tensor:
    return b.reshape(total(b, b.tensor(call["self"]), reduced_axes(call)), shape_of(call.result))


def reduced_sizes(call: Call) -> list[Size]:
    """The sizes of the axes that a reduction removes."""
    shape = shape_of(call["self"])
    return [shape[axis] for axis in reduced_axes(call)]


def variance_correction(call: Call) -> float:
    """The number that var.correction subtracts from the number of elements."""
    correction = call["correction"]
    return 1.0 if correction is None else float(correction)


def enough_elements(call: Call) -> str | None:
    """There are more elements than the correction."""
    count, correction = math.prod(reduced_sizes(call)), variance_correction(call)
    if isinstance(count, Dynamic):
        return f"correction {correction:g} of {count} elements, a number that changes" if correction else None
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def _variance(b: ProgramBuilder, call: Call) -> Tensor:
    axes, correction = reduced_axes(call), variance_correction(call)
    _, squared = _centred(b, b.tensor(call["self"]), axes)
    result = mean(b, squared, axes)
    if correction:
        count = largest(math.prod(reduced_sizes(call)))
        result = b.binary(BinaryKind.MULTIPLY, result, b.scalar(count / (count - correction)))
    return b.reshape(result, shape_of(call.result))


def _centred(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """x minus its mean, and the squares of that."""
    centred = b.binary(BinaryKind.SUBTRACT, x, mean(b, x, axes))
    return centred, b.unary(UnaryKind.SQUARE, centred)


# -- extremes --------------------------------------------------------------------------------------------------------


def whole_extreme(call: Call) -> str | None:
    """No size changes."""
    shape = shape_of(call["self"])
    return f"a maximum of {shape}, which changes from call to call" if dynamic_count(shape) else None


def few_pooled(call: Call) -> str | None:
    """If several sizes change, there are at most 4 axes."""
    return _pools_obstacle(shape_of(call["self"]))


def _extreme(*, maximum: bool) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        x = b.tensor(call["self"])
        axes = reduced_axes(call)
        result = _maximum(b, x if maximum else b.unary(UnaryKind.NEGATE, x), axes)
        return b.reshape(result if maximum else b.unary(UnaryKind.NEGATE, result), shape_of(call.result))

    return lower


def _maximum(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The maximum over logical axes of known sizes, which are kept with size 1; perhaps with unit axes in front."""
    if dynamic_count(x.shape) > 1:
        return _maximum_of_axes(b, x, axes)
    for start, stop in _stored_runs(x, axes):
        x = _maximum_of_run(b, x, start, stop)
    return x


def _maximum_of_run(b: ProgramBuilder, x: Tensor, start: int, stop: int) -> Tensor:
    stored = x.value.shape
    outer, inner = math.prod(stored[:start]), math.prod(stored[stop:])
    count = largest(math.prod(stored[start:stop]))
    value = x.value
    if inner == 1:
        # Pooling works along channels. A long row is split into columns, whose maxima form a shorter row.
        width = _column_count(count)
        if width > 1:
            value, count = _column_maxima(b, value, outer, count // width, width), width
        # Rows become columns.
        value, outer, inner = b.transposed(b.reshaped(value, (outer, count, 1)), (2, 1, 0)), 1, outer
    return _with_run_reduced(b, x, _column_maxima(b, value, outer, count, inner), start, stop)


def _column_maxima(b: ProgramBuilder, value: Value, outer: Size, count: int, inner: Size) -> Value:
    operator = ops.Pool(PoolKind.MAXIMUM, Padding(), (count, 1), (count, 1))
    return b.emit(operator, b.reshaped(value, (outer, count, 1, inner)))


def _column_count(count: int) -> int:
    """The number of columns for a row of this many elements: about its square root, or 1 if it is short or odd."""
    if count < _SHORT_ROW:
        return 1
    divisor = next(size for size in range(math.isqrt(count), 0, -1) if count % size == 0)
    return divisor if divisor >= _VECTOR else 1


def _maximum_of_axes(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> Tensor:
    """The maximum over logical axes of known sizes of a tensor of rank 4 or less, one by one. The result has rank 4."""
    lifts = 4 - len(x.shape)
    for _ in range(lifts):
        x = b.lifted(x)
    for axis in axes:
        reduced = axis + lifts
        count = largest(x.shape[reduced])
        if count == 1:
            continue
        others = sorted({0, 1, 2, 3} - {reduced}, key=lambda at: x.order[at])
        order = inverse([others[0], reduced, *others[1:]])
        operator = ops.Pool(PoolKind.MAXIMUM, Padding(), (count, 1), (count, 1))
        x = Tensor(b.emit(operator, b.stored(x, order)), order)
    return x


# -- softmax and normalization ---------------------------------------------------------------------------------------


def _softmax(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axis = axis_of(call["dim"], len(x.shape))
    last = x.order[axis]
    # XNNPACK normalizes the axis that is stored last.
    order = tuple(len(x.order) - 1 if at == last else at - (at > last) for at in x.order)
    value = b.stored(x, order)
    return Tensor(b.emit(ops.Unary(UnaryKind.SOFTMAX), value), order)


def _log_softmax(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axes = (axis_of(call["dim"], len(x.shape)),)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    below = b.binary(BinaryKind.SUBTRACT, x, b.reshape(_maximum(b, x, axes), kept))
    scale = b.reshape(total(b, b.unary(UnaryKind.EXP, below), axes), kept)
    return b.binary(BinaryKind.SUBTRACT, below, b.unary(UnaryKind.LOG, scale))


def _log_sum_exp(b: ProgramBuilder, call: Call) -> Tensor:
    x, axes = b.tensor(call["self"]), reduced_axes(call)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    # An infinite maximum minus itself would be NaN.
    shift = b.reshape(b.clamp(_maximum(b, x, axes), -LARGEST, LARGEST), kept)
    scale = b.reshape(total(b, b.unary(UnaryKind.EXP, b.binary(BinaryKind.SUBTRACT, x, shift)), axes), kept)
    return b.reshape(b.binary(BinaryKind.ADD, b.unary(UnaryKind.LOG, scale), shift), shape_of(call.result))


def positive_epsilon(call: Call) -> str | None:
    """eps is positive."""
    epsilon = call["eps"]
    return None if epsilon > 0 else f"eps = {epsilon}: a constant input would be divided by zero"


def few_normalized(call: Call) -> str | None:
    """If several sizes change, there are at most 5 axes."""
    return _pairs_obstacle(shape_of(call["input"]), len(call["normalized_shape"]))


def _layer_norm(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["input"])
    rank = len(x.shape)
    axes = range(rank - len(call["normalized_shape"]), rank)
    result = normalized(b, x, axes, call["eps"])
    return _scale_and_shift(b, result, call["weight"], call["bias"])


def normalized(b: ProgramBuilder, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) over logical axes."""
    centred, squared = _centred(b, x, axes)
    variance = b.binary(BinaryKind.ADD, mean(b, squared, axes), b.scalar(epsilon))
    return b.binary(BinaryKind.MULTIPLY, centred, b.unary(UnaryKind.RECIPROCAL_SQUARE_ROOT, variance))


def few_groups(call: Call) -> str | None:
    """If several sizes change, there are at most 4 axes and 64 groups."""
    shape, groups = shape_of(call["input"]), call["num_groups"]
    batch, channels, *rest = shape
    if dynamic_count(shape) < 2:
        return None
    grouped = (batch, groups, channels // groups, *rest)
    # Axes that can be joined again can be split.
    return reshape_obstacle(grouped, shape) or _pairs_obstacle(grouped, len(grouped) - 2)


def _group_norm(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["input"])
    groups, rank = call["num_groups"], len(x.shape)
    batch, channels, *rest = x.shape
    # One axis is easier to reduce; but if several sizes change, a reshape could not split it again.
    spatial = [math.prod(rest)] if dynamic_count(x.shape) < 2 else rest
    grouped = b.reshape(x, (batch, groups, channels // groups, *spatial))
    result = b.reshape(normalized(b, grouped, range(2, 3 + len(spatial)), call["eps"]), x.shape)
    channel_shape = (channels, *[1] * (rank - 2))
    return _scale_and_shift(b, result, call["weight"], call["bias"], channel_shape)


def _scale_and_shift(
    b: ProgramBuilder, x: Tensor, weight: Operand | None, bias: Operand | None, shape: Shape | None = None
) -> Tensor:
    """x * weight + bias, either may be missing; `shape` is their shape for broadcasting if not their own."""
    for kind, parameter in ((BinaryKind.MULTIPLY, weight), (BinaryKind.ADD, bias)):
        if parameter is not None:
            operand = b.tensor(parameter)
            x = b.binary(kind, x, operand if shape is None else b.reshape(operand, shape))
    return x


# -- the rows ----------------------------------------------------------------------------------------------------------

#: Of operators that reduce first by a maximum, then by a sum.
_EXPONENTIAL_SUMS: Final = (reducible(counted=True, averaged=True), few_pooled)
_POOLED_AND_EXPONENTIAL: Final = f"{POOLED_NAN}, and {EXPONENTIAL_NAN}"
_LOGARITHMS: Final = f"{_POOLED_AND_EXPONENTIAL}; {LOGARITHM_ENDS}"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _mean_of_call, not_narrowed, reducible(averaged=True)),
    row("sum.dim_IntList", _sum, not_narrowed, reducible(counted=True, averaged=True)),
    row("var.correction", _variance, enough_elements, reducible(averaged=True)),
    row("amax.default", _extreme(maximum=True), reducible(counted=True), special_values=POOLED_NAN, float16=always),
    row("amin.default", _extreme(maximum=False), reducible(counted=True), special_values=POOLED_NAN, float16=always),
    row("max.default", _extreme(maximum=True), whole_extreme, special_values=POOLED_NAN),
    row("min.default", _extreme(maximum=False), whole_extreme, special_values=POOLED_NAN),
    row("_softmax.default", _softmax, not_scalar),
    row("_log_softmax.default", _log_softmax, not_scalar, *_EXPONENTIAL_SUMS, special_values=_LOGARITHMS),
    row("logsumexp.default", _log_sum_exp, *_EXPONENTIAL_SUMS, keep=True, special_values=_LOGARITHMS),
    row("layer_norm.default", _layer_norm, positive_epsilon, few_normalized, keep=True),
    row("group_norm.default", _group_norm, positive_epsilon, few_groups, keep=True),
)
