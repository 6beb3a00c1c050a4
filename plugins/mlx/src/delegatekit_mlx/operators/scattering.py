"""Operators that write elements to places that other tensors name: scatter, index_put."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import (
    ANY,
    NUMBERS,
    add,
    binary,
    div,
    expanded,
    fixed,
    in_float32,
    mul,
    sliced,
    tensor,
    transposed,
    where,
)
from .places import from_front, integer_indices, rows_of, same_axes


def _source(b: GraphBuilder, call: Call, index: Value) -> Value:
    """What is written: of the index's sizes."""
    if call.has("value"):
        return expanded(b, b.number(call["value"], call["self"].dtype), index.shape)
    source = tensor(b, call, "src")
    for axis, size in enumerate(index.shape):
        source = sliced(b, source, axis, 0, size)
    return source


def _scatter(b: GraphBuilder, call: Call) -> Value:
    """Elements at the index's places along an axis: as rows of one element at places among all."""
    x, index = tensor(b, call), b.cast(tensor(b, call, "index"), torch.int64)
    axis = axis_of(call["dim"], x.rank)
    sizes, counts = [int(size) for size in x.shape], [int(size) for size in index.shape]
    steps = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    base = torch.zeros(counts, dtype=torch.int64)
    for at, size in enumerate(counts):
        if at != axis:
            base += (torch.arange(size) * steps[at]).reshape([-1 if other == at else 1 for other in range(len(counts))])
    places = add(b, mul(b, index, steps[axis]), b.constant(base))
    count = math.prod(counts)
    made = b.op(
        schema.IndexCopyNode,
        (math.prod(sizes),),
        x.dtype,
        dst=b.reshape(x, (math.prod(sizes),)),
        update=b.reshape(_source(b, call, index), (count,)),
        indices=b.reshape(places, (count,)),
        axis=0,
    )
    return b.reshape(made, sizes)


def _added(b: GraphBuilder, x: Value, index: Value, source: Value, axis: int) -> Value:
    return b.op(schema.ScatterAddNode, x.shape, x.dtype, x=x, indices=index, updates=source, axis=axis)


def _scatter_add(b: GraphBuilder, call: Call) -> Value:
    index = tensor(b, call, "index")
    axis, source = axis_of(call["dim"], call["self"].rank), _source(b, call, index)
    return in_float32(b, tensor(b, call), lambda x: _added(b, x, index, b.cast(source, x.dtype), axis))


def _scatter_reduce(b: GraphBuilder, call: Call) -> Value:
    """Sums, or means: sums over the number of terms."""
    index = tensor(b, call, "index")
    axis, source = axis_of(call["dim"], call["self"].rank), _source(b, call, index)

    def make(x: Value) -> Value:
        zero, one = b.number(0.0, x.dtype), b.number(1.0, x.dtype)
        count = _added(b, expanded(b, zero, x.shape), index, expanded(b, one, index.shape), axis)
        is_written = binary(b, schema.GreaterNode, count, 0.0, torch.bool)
        start = x if call["include_self"] else where(b, is_written, 0.0, x)
        made = _added(b, start, index, b.cast(source, x.dtype), axis)
        if call["reduce"] == "sum":
            return made
        terms = add(b, count, 1.0) if call["include_self"] else where(b, is_written, count, 1.0)
        return div(b, made, terms)

    return in_float32(b, tensor(b, call), make)


def _index_put(b: GraphBuilder, call: Call) -> Value:
    """Rows at places along several axes, which are one in front meanwhile."""
    x, found = tensor(b, call), indices_of(call)
    if len(found) == 1 and not call["accumulate"]:
        return _rows_put(b, call, x)
    rows, places = rows_of(b, call, x)
    rest = [axis for axis in range(x.rank) if axis not in found]
    axes = places.rank
    before = axis_of_indices(found)
    order = [*range(before, before + axes), *range(before), *range(before + axes, axes + len(rest))]
    sizes = [x.shape[axis] for axis in rest]
    source = expanded(b, tensor(b, call, "values"), [*sizes[:before], *places.shape, *sizes[before:]])
    count = math.prod(places.shape)
    source = b.reshape(transposed(b, source, order), (count, *sizes))
    flat = b.reshape(places, (count,))
    if call["accumulate"]:
        index = expanded(b, b.reshape(flat, (count, *[1] * len(rest))), (count, *sizes))
        made = in_float32(b, rows, lambda wide: _added(b, wide, index, b.cast(source, wide.dtype), 0))
    else:
        made = b.op(schema.IndexCopyNode, rows.shape, x.dtype, dst=rows, update=source, indices=flat, axis=0)
    front = [*found, *rest]
    made = b.reshape(made, [x.shape[axis] for axis in front])
    return transposed(b, made, [front.index(axis) for axis in range(x.rank)])


def _rows_put(b: GraphBuilder, call: Call, x: Value) -> Value:
    """Rows at places along one axis, which stays where it is."""
    ((axis, index),) = indices_of(call).items()
    places = from_front(b, index, x.shape[axis])
    source = expanded(b, tensor(b, call, "values"), [*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])
    count = math.prod(places.shape)
    source = b.reshape(source, [*x.shape[:axis], count, *x.shape[axis + 1 :]])
    flat = b.reshape(places, (count,))
    return b.op(schema.IndexCopyNode, x.shape, x.dtype, dst=x, update=source, indices=flat, axis=axis)


def any_axes(call: Call) -> str | None:
    """Some axes are indexed."""
    return None if indices_of(call) else "no axes are indexed"


def fixed_places(call: Call) -> str | None:
    """Tensor and index have fixed sizes."""
    return None if fixed((*call["self"].shape, *call["index"].shape)) else "sizes of tensor or index change"


def sum_or_mean(call: Call) -> str | None:
    """What is written is added, or averaged if it is no integer."""
    mode = call["reduce"]
    if mode not in ("sum", "mean"):
        return f"reduce = {mode!r}"
    return "an average of integers" if mode == "mean" and not call["self"].dtype.is_floating_point else None


#: Of several numbers for one place, PyTorch keeps any, too.
_ORDER: Final = "of several numbers for one place, any may stay"
_ALONG: Final = (has_axes("self"), has_axes("index"), same_axes)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("scatter.src scatter.value", _scatter, ANY, *_ALONG, fixed_places, passenger=True, special_values=_ORDER),
    row("scatter_add.default", _scatter_add, NUMBERS, *_ALONG),
    row("scatter_reduce.two", _scatter_reduce, NUMBERS, *_ALONG, sum_or_mean, keep=True),
    row("index_put.default", _index_put, NUMBERS, integer_indices, any_axes, passenger=True, special_values=_ORDER),
)
