"""Operators that look elements up."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, as_numbers, as_type
from .moves import from_front, looked_up, rows_of, sliced, something_indexed
from .program import Lower, ProgramBuilder


def _embedding(b: ProgramBuilder, call: Call) -> Value:
    return looked_up(b, b.activation(call["weight"]), 0, b.value(call["indices"]))


def _selected(b: ProgramBuilder, call: Call) -> Value:
    x = b.value(call["self"])
    axis = axis_of(call["dim"], x.rank)
    places = Value(b.reshaped(b.dense(b.value(call["index"])), (call.result.shape[axis],)), (0,))
    if x.is_fixed or call["index"].is_constant:
        return looked_up(b, x, axis, places)
    # Among quantized tensors the library (2.49) finds wrong floats by computed indices of a later axis than the first.
    order = (axis, *(other for other in range(x.rank) if other != axis))
    return looked_up(b, x.permuted(order), 0, places).permuted([order.index(place) for place in range(x.rank)])


def _gathered(b: ProgramBuilder, call: Call) -> Value:
    """QNN's operands have equal sizes but along the axis; PyTorch's index may be smaller."""
    like = b.value(call["self"])
    x, index = as_numbers(b, like), b.value(call["index"])
    along = axis_of(call["dim"], x.rank)
    for axis, size in enumerate(index.shape):
        if axis != along:
            x = sliced(b, x, axis, 0, size)
    tensor, indices = b.dense(x), b.dense(index)
    made = b.emit(
        "GatherElements",
        [tensor, indices],
        indices.shape,
        tensor.datatype,
        tensor.encoding,
        axis=Scalar(DataType.UINT32, along),
    )
    return as_type(b, Value(made, identity(x.rank)), like)


# -- several axes ------------------------------------------------------------------------------------------------------


def _indexed(b: ProgramBuilder, call: Call) -> Value:
    x, found = b.value(call["self"]), indices_of(call)
    if len(found) == 1:
        ((axis, index),) = found.items()
        return looked_up(b, x, axis, from_front(b, index, x.shape[axis]))
    last = max(found)
    tensor = b.reshaped(b.dense(x), (math.prod(x.shape[: last + 1]), *x.shape[last + 1 :]))
    return looked_up(b, Value(tensor, identity(tensor.rank)), 0, rows_of(b, x, found))


def known_places(call: Call) -> str | None:
    """Constant places lie inside."""
    name = "indices" if call.has("indices") else "index"
    source: Operand = call["weight"] if call.has("weight") else call["self"]
    axis = 0 if call.has("weight") else axis_of(call["dim"], source.rank)
    found = call[name].constant
    if found is None or not found.numel():
        return None
    low, high = int(found.min()), int(found.max())
    return None if low >= 0 and high < source.shape[axis] else f"{name} has the place {low if low < 0 else high}"


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", "float32"), known_places, weights=("weight",)),
    row("index.Tensor", _indexed, ANY, has_axes("self"), something_indexed, passenger=True, moves=True),
    row("index_select.default", _selected, ANY, has_axes("self"), known_places, passenger=True, moves=True),
    row(
        "gather.default", _gathered, ANY, has_axes("self"), has_axes("index"), known_places, passenger=True, moves=True
    ),
)
