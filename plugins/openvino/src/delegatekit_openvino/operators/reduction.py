"""Reductions along axes, softmax, running sums, and the positions of the largest and the least."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.along import known_order
from delegatekit_toolkit.composed.rows import variance_rows
from delegatekit_toolkit.constraints import has_axes, nonempty
from delegatekit_toolkit.narrowing import may_be_large
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Made, ModelBuilder, Value
from .common import ANY, NUMBERS, REAL, SORTED, composed, dropped, extreme, in_order, lost_nan, own, reduced, tensor


def _reduction(kind: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        x = b.cast(tensor(b, call), b.result_type(call))
        make = extreme if kind in ("max", "min") else reduced
        return own(b, call, make(b, kind, x, reduced_axes(call), keep=bool(call.get("keepdim", False))))

    return lower


def exact_sum(call: Call) -> str | None:
    """Of integers, what is 0 or 1 is summed: OpenVINO adds them in float32."""
    if call.result.dtype.is_floating_point or not may_be_large(call["self"]):
        return None
    return "a sum of integers may leave the 24 bits in which OpenVINO adds them"


def _any(b: ModelBuilder, call: Call) -> Value:
    """True if any elements are not 0."""
    x = b.cast(tensor(b, call), torch.bool)
    return own(b, call, reduced(b, "logical_or", x, reduced_axes(call), keep=bool(call.get("keepdim", False))))


def _extremes(*, ascending: bool) -> Lower:
    """The least or largest along an axis, and the first place of it."""

    def lower(b: ModelBuilder, call: Call) -> Made:
        x = tensor(b, call)
        axis = axis_of(call["dim"], x.rank)
        values, places = in_order(b, x, axis, 1, ascending=ascending)
        if not call["keepdim"]:
            values, places = dropped(b, values, [axis]), dropped(b, places, [axis])
        return values, places

    return lower


def _position(*, ascending: bool) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        x, dim = tensor(b, call), call["dim"]
        if dim is None:
            _, places = in_order(b, b.reshape(x, (-1,)), 0, 1, ascending=ascending)
            return b.reshape(places, call.result.shape)
        axis = axis_of(dim, x.rank)
        _, places = in_order(b, x, axis, 1, ascending=ascending)
        return places if call["keepdim"] else dropped(b, places, [axis])

    return lower


def _along(kind: str) -> Lower:
    def lower(b: ModelBuilder, call: Call) -> Value:
        x = tensor(b, call)
        return b.declare(b.op(kind, x, axis=axis_of(call["dim"], x.rank)), x.shape)

    return lower


def _running_sum(b: ModelBuilder, call: Call) -> Value:
    x = b.cast(tensor(b, call), b.result_type(call))
    return b.declare(b.op("cum_sum", x, b.scalar(axis_of(call["dim"], x.rank))), x.shape)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction("mean"), REAL),
    row("sum.dim_IntList", _reduction("sum"), ANY, exact_sum),
    row("amax.default", _reduction("max"), NUMBERS, special_values=lost_nan),
    row("amin.default", _reduction("min"), NUMBERS, special_values=lost_nan),
    row("max.default", _reduction("max"), NUMBERS, special_values=lost_nan),
    row("min.default", _reduction("min"), NUMBERS, special_values=lost_nan),
    row("prod.default prod.dim_int", _reduction("prod"), REAL),
    row("any.default any.dim any.dims", _any, ANY, nonempty("dim")),
    row("max.dim", _extremes(ascending=False), SORTED, has_axes("self"), special_values=lost_nan),
    row("min.dim", _extremes(ascending=True), SORTED, has_axes("self"), special_values=lost_nan),
    row("argmax.default", _position(ascending=False), SORTED, has_axes("self"), special_values=lost_nan),
    row("argmin.default", _position(ascending=True), SORTED, has_axes("self"), special_values=lost_nan),
    row("_softmax.default", _along("softmax"), REAL, has_axes("self"), special_values=lost_nan),
    row("_log_softmax.default", _along("log_softmax"), REAL, has_axes("self"), special_values=lost_nan),
    row("cumsum.default", _running_sum, REAL, has_axes("self")),
    *variance_rows(composed, REAL, static_only=True),
    row(
        "linalg_vector_norm.default",
        composed(along.norm, arguments="ord dim keepdim"),
        REAL,
        known_order(0, 1, 2, float("inf"), float("-inf")),
        keep=True,
        static_only=True,
        special_values=lost_nan,
    ),
)
