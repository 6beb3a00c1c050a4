"""Reductions along axes, and softmax.

The runtime reduces the last axis of a tensor in any form, and in textures one or two of the last three axes that stay
with size 1. Everything else is several such reductions, or one after axes were permuted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of, axis_of
from delegatekit_toolkit.constraints import dtypes
from delegatekit_toolkit.layout import inverse
from delegatekit_toolkit.narrowing import narrowed
from delegatekit_toolkit.sizes import Dynamic, largest
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Argument, Tensor
from ..ir.stock import MAX, PAD
from ..ir.types import TEXTURE_RANK, DataType
from ..targets import TARGETS
from .common import converted, four_axes
from .conditions import FLOATS, few_changing, float_operands, not_scalar
from .program import Lower, ProgramBuilder

_MEAN: Final = "aten.mean.dim"
_SUM: Final = "aten.sum.dim_IntList"
#: Arguments after `keepdim`, with their defaults: the runtime looks for the result at the place after all of them.
_MORE: Final[dict[str, tuple[Argument, ...]]] = {_MEAN: (None,), _SUM: (None,)}


def reduced(b: ProgramBuilder, operator: str, x: Tensor, axes: Sequence[int]) -> Tensor:
    """A reduction along axes, which stay with size 1."""
    for group in _groups(b, x, [axis for axis in axes if x.shape[axis] != 1]):
        x = _reduced_once(b, operator, x, group, group)
    return x


def _groups(b: ProgramBuilder, x: Tensor, axes: Sequence[int]) -> list[tuple[int, ...]]:
    """The axes in parts that the runtime reduces at once: two of the last three in a texture, else each by itself."""
    near = [axis for axis in axes if axis >= x.rank - 3]
    far = [(axis,) for axis in axes if axis < x.rank - 3]
    if not _fits_texture(b, x):
        return [*((axis,) for axis in reversed(near)), *far]
    return [tuple(near[max(end - 2, 0) : end]) for end in range(len(near), 0, -2)] + far


def _fits_texture(b: ProgramBuilder, x: Tensor) -> bool:
    if x.rank > TEXTURE_RANK:
        return False
    *outer, height, width = (1,) * (TEXTURE_RANK - x.rank) + x.sizes
    limits = TARGETS[b.options.target].texture
    return all(size <= most for size, most in zip((width, height, math.prod(outer)), limits, strict=True))


def _reduced_once(
    b: ProgramBuilder,
    operator: str,
    x: Tensor,
    axes: tuple[int, ...],
    dims: Argument,
    datatype: DataType | None = None,
) -> Tensor:
    """One call. `dims` is how the operator wants one or two axes."""
    last = x.rank - 1
    direct = axes == (last,) or (_fits_texture(b, x) and axes[0] >= x.rank - 3)
    order = None
    if not direct:
        (axis,) = axes
        order = (*(other for other in range(x.rank) if other != axis), axis)
        x = b.call("aten.permute_copy.default", [x, order], [x.shape[at] for at in order])
        axes, dims = (last,), last if isinstance(dims, int) else (last,)
    shape = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    made = b.call(operator, [x, dims, True, *_MORE.get(operator, ())], shape, datatype)
    if order is None:
        return made
    back = inverse(order)
    return b.call("aten.permute_copy.default", [made, back], [made.shape[at] for at in back])


def _finished(b: ProgramBuilder, call: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Without the reduced axes, unless they are kept."""
    shape = b.shape(call)
    if x.shape == shape:
        return x
    return b.call("aten.squeeze_copy.dims", [x, tuple(axes)], shape)


def _axes(call: Call) -> tuple[int, ...]:
    return axes_of(call.get("dim"), call["self"].rank)


def _reduction(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return _finished(b, call, reduced(b, operator, b.tensor(call["self"]), _axes(call)), _axes(call))

    return lower


def _position(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        x, dim = b.tensor(call["self"]), call["dim"]
        if dim is None:
            x = b.view(x, (math.prod(x.shape),))
            return b.view(_reduced_once(b, operator, x, (0,), 0, DataType.INT32), b.shape(call))
        if not x.rank:
            x = b.view(x, (1,))
            return b.view(_reduced_once(b, operator, x, (0,), 0, DataType.INT32), ())
        axis = axis_of(dim, x.rank)
        return _finished(b, call, _reduced_once(b, operator, x, (axis,), axis, DataType.INT32), (axis,))

    return lower


def _truth(b: ProgramBuilder, call: Call) -> Tensor:
    """Whether any elements are not 0: the largest of ones and zeros."""
    x = b.tensor(call["self"])
    if x.datatype is not DataType.BOOL:
        x = b.call("aten.ne.Scalar", [x, 0], x.shape, DataType.BOOL)
    one, zero = (b.scalar(number, DataType.FLOAT32) for number in (1.0, 0.0))
    x = b.call("aten.where.self", [x, one, zero], x.shape, DataType.FLOAT32)
    x = reduced(b, MAX, x, _axes(call))
    return _finished(b, call, b.call("aten.gt.Scalar", [x, 0.5], x.shape, DataType.BOOL), _axes(call))


# -- variance ----------------------------------------------------------------------------------------------------------


def enough_elements(call: Call) -> str | None:
    """There are more elements than the correction; with a correction, their number does not change."""
    shape = shape_of(call["self"])
    count, correction = math.prod(shape[axis] for axis in _axes(call)), _correction(call)
    if isinstance(count, Dynamic):
        return f"correction {correction:g} of {count} elements, a number that changes" if correction else None
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def _correction(call: Call) -> float:
    correction = call["correction"]
    return 1.0 if correction is None else float(correction)


def _variance(b: ProgramBuilder, call: Call) -> Tensor:
    x, axes = b.tensor(call["self"]), _axes(call)
    centred = b.call("aten.sub.Tensor", [x, reduced(b, _MEAN, x, axes), 1], x.shape)
    result = reduced(b, _MEAN, b.call("aten.mul.Tensor", [centred, centred], x.shape), axes)
    correction = _correction(call)
    if correction:
        count = largest(math.prod(x.shape[axis] for axis in axes))
        factor = b.scalar(count / (count - correction), x.datatype)
        result = b.call("aten.mul.Tensor", [result, factor], result.shape)
    return _finished(b, call, result, axes)


# -- sums up to each element -------------------------------------------------------------------------------------------


def _running_sum(b: ProgramBuilder, call: Call) -> Tensor:
    """Each element and those before it: sums of two, of four, of eight, ... elements, up to all of them."""
    x = converted(b, b.tensor(call["self"]), b.result_type(call))
    axis = axis_of(call["dim"], x.rank)
    size = x.shape[axis]
    end = size if isinstance(size, int) else b.size(x, axis)
    zero = 0.0 if x.datatype.is_float else 0
    step = 1
    while step < largest(size):
        pads = (*(0, 0) * (x.rank - 1 - axis), step, 0)
        longer = (*x.shape[:axis], size + step, *x.shape[axis + 1 :])
        moved = b.call(PAD, [x, pads, zero], longer)
        moved = b.call("aten.slice_copy.Tensor", [moved, axis, 0, end, 1], x.shape)
        x = b.call("aten.add.Tensor", [x, moved, 1], x.shape)
        step *= 2
    return x


# -- softmax -----------------------------------------------------------------------------------------------------------


def _softmax(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        x = b.tensor(call["self"])
        axis = axis_of(call["dim"], x.rank)
        if not _is_folded(call):
            return b.call(operator, [x, axis, False], x.shape)
        folded = b.view(x, (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])))
        return b.view(b.call(operator, [folded, 1, False], folded.shape), x.shape)

    return lower


def _is_folded(call: Call) -> bool:
    rank = call["self"].rank
    return rank > TEXTURE_RANK or (rank == TEXTURE_RANK and axis_of(call["dim"], rank) == 0)


_TRUTH_TYPES: Final = dtypes("bool", "float32", "float16", "int32", "int64")
_FLATTENED: Final = few_changing("self", lambda call: call["dim"] is None, "all of it is reduced")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction(_MEAN), FLOATS),
    row("sum.dim_IntList", _reduction(_SUM), FLOATS),
    row("amax.default max.default", _reduction(MAX), FLOATS),
    row("amin.default min.default", _reduction("aten.amin.default"), FLOATS),
    row("argmax.default", _position("aten.argmax.default"), float_operands, _FLATTENED),
    row("argmin.default", _position("aten.argmin.default"), float_operands, _FLATTENED),
    row("any.default any.dim any.dims", _truth, _TRUTH_TYPES),
    row("var.correction", _variance, FLOATS, enough_elements),
    row(
        "cumsum.default",
        _running_sum,
        _TRUTH_TYPES,
        not_scalar("self"),
        four_axes,
        special_values=narrowed,
        runs=(PAD, "aten.slice_copy.Tensor"),
    ),
    row(
        "_softmax.default",
        _softmax("aten._softmax.default"),
        FLOATS,
        not_scalar("self"),
        few_changing("self", _is_folded, "it has more than 4 axes or the first of 4 is normalized"),
        runs=(),
    ),
    row(
        "_log_softmax.default",
        _softmax("aten._log_softmax.default"),
        FLOATS,
        not_scalar("self"),
        few_changing("self", _is_folded, "it has more than 4 axes or the first of 4 is normalized"),
        runs=(),
    ),
)
