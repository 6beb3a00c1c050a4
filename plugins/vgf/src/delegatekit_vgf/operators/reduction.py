"""Reductions along axes, softmax, and running sums and products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.along import known_order
from delegatekit_toolkit.composed.rows import variance_rows
from delegatekit_toolkit.constraints import has_axes, nonempty
from delegatekit_toolkit.narrowing import narrow_sum
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import (
    DType,
    Log,
    Operator,
    ReduceAny,
    ReduceMax,
    ReduceMin,
    ReduceProduct,
    ReduceSum,
)

from ..ir.builder import Lower, Value, VgfBuilder
from .common import (
    ANY,
    EXTREMES,
    NUMBERS,
    REAL,
    composed,
    exponentials,
    mean,
    reduced,
    result_type,
    softmax,
    sub,
    tensor,
)


def _reduction(make: Callable[[int], Operator]) -> Lower:
    def lower(b: VgfBuilder, call: Call) -> Value:
        x = b.cast(tensor(b, call), result_type(call))
        return reduced(b, make, x, reduced_axes(call), keep=bool(call.get("keepdim", False)))

    return lower


def _mean(b: VgfBuilder, call: Call) -> Value:
    x = b.cast(tensor(b, call), result_type(call))
    return mean(b, x, reduced_axes(call), bool(call.get("keepdim", False)))


def _any(b: VgfBuilder, call: Call) -> Value:
    x = b.cast(tensor(b, call), DType.BOOL)
    return reduced(b, ReduceAny, x, reduced_axes(call), keep=bool(call.get("keepdim", False)))


def _softmax(b: VgfBuilder, call: Call) -> Value:
    return softmax(b, *_along(b, call))


def _log_softmax(b: VgfBuilder, call: Call) -> Value:
    moved, _, total = exponentials(b, *_along(b, call))
    found: Value = sub(b, moved, b.apply(Log(), total))
    return found


def _along(b: VgfBuilder, call: Call) -> tuple[Value, int]:
    x = b.cast(tensor(b, call), result_type(call))
    return x, axis_of(call["dim"], len(x.order))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _mean, REAL),
    row("sum.dim_IntList", _reduction(ReduceSum), ANY, narrow_sum),
    row("amax.default max.default", _reduction(ReduceMax), NUMBERS),
    row("amin.default min.default", _reduction(ReduceMin), NUMBERS),
    row("prod.default prod.dim_int", _reduction(ReduceProduct), REAL),
    row("any.default any.dim any.dims", _any, ANY, nonempty("dim")),
    row("_softmax.default", _softmax, REAL, has_axes("self")),
    row("_log_softmax.default", _log_softmax, REAL, has_axes("self")),
    row("cumsum.default", composed(along.cumsum, arguments="dim"), REAL, has_axes("self"), keep=True),
    row("cumprod.default", composed(along.cumprod, arguments="dim"), REAL, has_axes("self"), keep=True),
    *variance_rows(composed, REAL),
    row(
        "linalg_vector_norm.default",
        composed(along.norm, arguments="ord dim keepdim"),
        REAL,
        known_order(0, 1, 2, float("inf"), float("-inf")),
        keep=True,
        special_values=EXTREMES,
    ),
)
