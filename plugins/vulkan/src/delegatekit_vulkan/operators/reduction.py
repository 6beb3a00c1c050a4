"""Reductions along axes, and softmax.

The runtime reduces the last axis of a tensor in any form, and in textures one or two of the last three axes that stay
with size 1. Everything else is several such reductions, or one after axes were permuted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.along import enough_elements, known_order
from delegatekit_toolkit.constraints import dtypes, has_axes, nonempty, operands
from delegatekit_toolkit.narrowing import narrowed
from delegatekit_toolkit.sizes import largest
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Tensor
from ..ir.stock import MAX, MEAN, MIN, PAD, SUM
from ..ir.types import TEXTURE_RANK, DataType
from .common import composed_along, converted, four_axes
from .conditions import FLOATS, few_changing
from .program import Lower, ProgramBuilder
from .reductions import reduced, reduced_once


def _finished(b: ProgramBuilder, call: Call, x: Tensor, axes: Sequence[int]) -> Tensor:
    """Without the reduced axes, unless they are kept."""
    shape = b.shape(call)
    if x.shape == shape:
        return x
    return b.call("aten.squeeze_copy.dims", [x, tuple(axes)], shape)


def _reduction(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return _finished(b, call, reduced(b, operator, b.tensor(call["self"]), reduced_axes(call)), reduced_axes(call))

    return lower


def _position(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        x, dim = b.tensor(call["self"]), call["dim"]
        if dim is None:
            x = b.view(x, (math.prod(x.shape),))
            return b.view(reduced_once(b, operator, x, (0,), 0, DataType.INT32), b.shape(call))
        if not x.rank:
            x = b.view(x, (1,))
            return b.view(reduced_once(b, operator, x, (0,), 0, DataType.INT32), ())
        axis = axis_of(dim, x.rank)
        return _finished(b, call, reduced_once(b, operator, x, (axis,), axis, DataType.INT32), (axis,))

    return lower


def _truth(b: ProgramBuilder, call: Call) -> Tensor:
    """True if any elements are not 0: the maximum of ones and zeros."""
    x = b.tensor(call["self"])
    if x.datatype is not DataType.BOOL:
        x = b.call("aten.ne.Scalar", [x, 0], x.shape, DataType.BOOL)
    one, zero = (b.scalar(number, DataType.FLOAT32) for number in (1.0, 0.0))
    x = b.call("aten.where.self", [x, one, zero], x.shape, DataType.FLOAT32)
    x = reduced(b, MAX, x, reduced_axes(call))
    return _finished(b, call, b.call("aten.gt.Scalar", [x, 0.5], x.shape, DataType.BOOL), reduced_axes(call))


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

_VARIANCE: Final = composed_along(along.var, arguments="dim correction keepdim")
_DISTANCES: Final = composed_along(along.cdist, "x1 x2", "p")
_PRODUCTS: Final = composed_along(along.cumprod, arguments="dim")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction(MEAN), FLOATS),
    row("sum.dim_IntList", _reduction(SUM), FLOATS),
    row("amax.default max.default", _reduction(MAX), FLOATS),
    row("amin.default min.default", _reduction(MIN), FLOATS),
    row("argmax.default", _position("aten.argmax.default"), operands("float32", "float16"), _FLATTENED),
    row("argmin.default", _position("aten.argmin.default"), operands("float32", "float16"), _FLATTENED),
    row("any.default any.dim any.dims", _truth, _TRUTH_TYPES, nonempty("dim")),
    row("var.correction", _VARIANCE, FLOATS, enough_elements),
    row(
        "_cdist_forward.default",
        _DISTANCES,
        FLOATS,
        four_axes,
        known_order(1, 2, math.inf),
    ),
    *(
        row(
            f"{make.__name__}.default",
            composed_along(make, arguments="dim"),
            _TRUTH_TYPES,
            has_axes("self"),
            four_axes,
            keep=True,
            static_only=True,
        )
        for make in (along.cummax, along.cummin)
    ),
    row(
        "cumprod.default",
        composed_along(along.cumprod, arguments="dim"),
        FLOATS,
        has_axes("self"),
        keep=True,
        static_only=True,
    ),
    row(
        "cumsum.default",
        _running_sum,
        _TRUTH_TYPES,
        has_axes("self"),
        four_axes,
        special_values=narrowed,
        runs=(PAD, "aten.slice_copy.Tensor"),
    ),
    row(
        "_softmax.default",
        _softmax("aten._softmax.default"),
        FLOATS,
        has_axes("self"),
        few_changing("self", _is_folded, "it has more than 4 axes or the first of 4 is normalized"),
        runs=(),
    ),
    row(
        "_log_softmax.default",
        _softmax("aten._log_softmax.default"),
        FLOATS,
        has_axes("self"),
        few_changing("self", _is_folded, "it has more than 4 axes or the first of 4 is normalized"),
        runs=(),
    ),
)
