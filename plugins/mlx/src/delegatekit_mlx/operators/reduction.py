"""Reductions along axes, softmax, running sums, and the positions of the largest and the least."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.rows import variance_rows
from delegatekit_toolkit.constraints import has_axes, nonempty, operands
from delegatekit_toolkit.expressions import fixed_axes
from delegatekit_toolkit.flatbuffer import Table
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Made, Value
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    REAL,
    binary,
    composed,
    dropped,
    in_float32,
    reduced,
    sub,
    summed,
    tensor,
    unary,
)


def _reduction(kind: type[Table]) -> Lower:
    def lower(b: GraphBuilder, call: Call) -> Value:
        x = b.cast(tensor(b, call), call.results[0].dtype)
        return summed(b, kind, x, reduced_axes(call), keep=bool(call.get("keepdim", False)))

    return lower


def _extreme(kind: type[Table]) -> Lower:
    def lower(b: GraphBuilder, call: Call) -> Value:
        x = tensor(b, call)
        if x.dtype is torch.bool:
            kind_of_booleans = schema.AnyNode if kind is schema.MaxNode else schema.AllNode
            return reduced(b, kind_of_booleans, x, reduced_axes(call), keep=bool(call.get("keepdim", False)))
        return reduced(b, kind, x, reduced_axes(call), keep=bool(call.get("keepdim", False)))

    return lower


def _any(b: GraphBuilder, call: Call) -> Value:
    """True if any elements are not 0."""
    x = tensor(b, call)
    truth = x if x.dtype is torch.bool else binary(b, schema.NotEqualNode, x, 0, torch.bool)
    made = reduced(b, schema.AnyNode, truth, reduced_axes(call), keep=bool(call.get("keepdim", False)))
    return b.cast(made, call.result.dtype)


def _position(b: GraphBuilder, x: Value, axis: int, kind: type[Table]) -> Value:
    """The first place of the largest or least along an axis, which NaN is."""
    shape = [1 if at == axis else size for at, size in enumerate(x.shape)]
    return b.cast(b.op(kind, shape, torch.uint32, x=x, axis=axis, keepdims=True), torch.int64)


_PLACES: Final[dict[type[Table], type[Table]]] = {schema.MaxNode: schema.ArgmaxNode, schema.MinNode: schema.ArgminNode}


def _extremes(kind: type[Table]) -> Lower:
    """The largest or least along an axis, and the first place of it."""

    def lower(b: GraphBuilder, call: Call) -> Made:
        x = tensor(b, call)
        axis = axis_of(call["dim"], x.rank)
        values, places = reduced(b, kind, x, [axis]), _position(b, x, axis, _PLACES[kind])
        if not call["keepdim"]:
            values, places = dropped(b, values, [axis]), dropped(b, places, [axis])
        return values, places

    return lower


def _arg(kind: type[Table]) -> Lower:
    def lower(b: GraphBuilder, call: Call) -> Value:
        x, dim = tensor(b, call), call["dim"]
        if dim is None:
            return b.reshape(_position(b, b.reshape(x, (-1,) if x.rank != 1 else x.shape), 0, kind), call.result.shape)
        axis = axis_of(dim, x.rank)
        places = _position(b, x, axis, kind)
        return places if call["keepdim"] else dropped(b, places, [axis])

    return lower


def _softmax(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return unary(b, schema.SoftmaxNode, x, axis=axis_of(call["dim"], x.rank), precise=True)


def _log_softmax(b: GraphBuilder, call: Call) -> Value:
    axis = axis_of(call["dim"], call["self"].rank)

    def make(x: Value) -> Value:
        less = sub(b, x, reduced(b, schema.MaxNode, x, [axis]))
        return sub(b, less, reduced(b, schema.LogSumExpNode, less, [axis]))

    return in_float32(b, tensor(b, call), make)


def _log_sum_exp(b: GraphBuilder, call: Call) -> Value:
    def make(x: Value) -> Value:
        return reduced(b, schema.LogSumExpNode, x, reduced_axes(call), keep=call["keepdim"])

    return in_float32(b, tensor(b, call), make)


def _running_sum(b: GraphBuilder, call: Call) -> Value:
    x = b.cast(tensor(b, call), call.result.dtype)
    axis = axis_of(call["dim"], x.rank)
    return in_float32(b, x, lambda wide: unary(b, schema.CumsumNode, wide, axis=axis))


_ARRANGED: Final = operands(*FLOATS, *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction(schema.MeanNode), REAL),
    row("sum.dim_IntList", _reduction(schema.SumNode), ANY),
    row("prod.default prod.dim_int", _reduction(schema.ProdNode), ANY),
    row("amax.default max.default", _extreme(schema.MaxNode), ANY),
    row("amin.default min.default", _extreme(schema.MinNode), ANY),
    row("any.default any.dim any.dims", _any, ANY, nonempty("dim")),
    row("max.dim", _extremes(schema.MaxNode), _ARRANGED, has_axes("self")),
    row("min.dim", _extremes(schema.MinNode), _ARRANGED, has_axes("self")),
    row("argmax.default", _arg(schema.ArgmaxNode), _ARRANGED, has_axes("self")),
    row("argmin.default", _arg(schema.ArgminNode), _ARRANGED, has_axes("self")),
    row("_softmax.default", _softmax, REAL, has_axes("self")),
    row("_log_softmax.default", _log_softmax, REAL, has_axes("self")),
    row("logsumexp.default", _log_sum_exp, REAL, has_axes("self"), keep=True),
    row("cumsum.default", _running_sum, ANY, has_axes("self")),
    *variance_rows(composed, REAL, static_only=True),
    row(
        "linalg_vector_norm.default",
        composed(along.norm, arguments="ord dim keepdim"),
        REAL,
        keep=True,
        static_only=True,
    ),
    *(
        row(
            f"{name}.default",
            composed(getattr(along, name), arguments="dim"),
            types,
            has_axes("self"),
            fixed_axes("self"),
            keep=True,
            static_only=True,
        )
        for name, types in (("cumprod", REAL), ("cummax", _ARRANGED), ("cummin", _ARRANGED))
    ),
)
