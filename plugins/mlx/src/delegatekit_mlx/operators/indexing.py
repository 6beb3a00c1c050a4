"""Operators that look elements up: embedding, index_select, gather, indexing by tensors."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import ANY, FLOATS, sliced, taken, tensor, transposed
from .places import integer_indices, rows_of, same_axes
from .weights import quantized_rows


def _embedding(b: GraphBuilder, call: Call) -> Value:
    indices = tensor(b, call, "indices")
    made = quantized_rows(b, indices, call["weight"])
    return taken(b, tensor(b, call, "weight"), 0, indices) if made is None else made


def _index_select(b: GraphBuilder, call: Call) -> Value:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    return taken(b, x, axis, b.reshape(tensor(b, call, "index"), (call.result.shape[axis],)))


def _index(b: GraphBuilder, call: Call) -> Value:
    x, found = tensor(b, call), indices_of(call)
    if len(found) == 1:
        ((axis, index),) = found.items()
        return taken(b, x, axis, b.value(index))
    rows, places = rows_of(b, call, x)
    made = taken(b, rows, 0, places)
    first, axes = axis_of_indices(found), places.rank
    return transposed(b, made, [*range(axes, axes + first), *range(axes), *range(axes + first, made.rank)])


def _gather(b: GraphBuilder, call: Call) -> Value:
    x, index = tensor(b, call), tensor(b, call, "index")
    along = axis_of(call["dim"], x.rank)
    for axis, size in enumerate(index.shape):
        if axis != along:
            x = sliced(b, x, axis, 0, size)
    return b.op(schema.TakeAlongAxisNode, index.shape, x.dtype, x=x, indices=index, axis=along)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *FLOATS)),
    row("index_select.default", _index_select, ANY, has_axes("self"), passenger=True),
    row("index.Tensor", _index, ANY, integer_indices, passenger=True),
    row("gather.default", _gather, ANY, has_axes("self"), has_axes("index"), same_axes, passenger=True),
)
