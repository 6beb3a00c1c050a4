"""Operators that look elements up."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, add, as_numbers, as_type, broadcast, compared, mul, where
from .program import Lower, ProgramBuilder
from .shape import sliced


def looked_up(b: ProgramBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Slices along an axis, by their places, whose axes stand for it."""
    like, x = x, as_numbers(b, x)
    source, places = b.dense(x), b.dense(indices)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    before, after = source.shape[:axis], source.shape[axis + 1 :]
    if x.rank > 4:
        # Of five axes, of which some have one element, the library looks nothing up.
        before, after = (math.prod(before),), (math.prod(after),)
        source = b.reshaped(source, (*before, x.shape[axis], *after))
    count = math.prod(indices.shape)
    made = b.emit(
        "Gather",
        [source, b.reshaped(places, (count,))],
        (*before, count, *after),
        source.datatype,
        source.encoding,
        axis=Scalar(DataType.INT32, len(before)),
    )
    return as_type(b, Value(b.reshaped(made, shape), identity(len(shape))), like)


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


def indices_of(call: Call) -> dict[int, Operand]:
    """The axes that are indexed, and by what."""
    return {axis: item for axis, item in enumerate(call["indices"]) if item is not None}


def something_indexed(call: Call) -> str | None:
    """At least one axis is indexed."""
    return None if indices_of(call) else "nothing is indexed"


def from_front(b: ProgramBuilder, operand: Operand, size: int) -> Value:
    """Indices counted from the front."""
    known = operand.constant
    if known is not None:
        array = known.numpy()
        return Value(b.constant(np.where(array < 0, array + size, array).astype(np.int32)), identity(operand.rank))
    indices = b.value(operand)
    return where(b, compared(b, "Less", indices, 0), add(b, indices, size), indices)


def rows_of(b: ProgramBuilder, x: Value, found: dict[int, Operand]) -> Value:
    """Where PyTorch's indices point to among the rows that the axes up to the last indexed one count.

    The result's axes are those that PyTorch has in the place of these axes.
    """
    shared = broadcast(*(item.shape for item in found.values()))
    first, last = min(found), max(found)
    in_a_row = list(found) == list(range(first, last + 1))
    free = [axis for axis in range(last) if axis not in found]
    # PyTorch has the indices' axes where these stand side by side, and in front otherwise.
    start = first if in_a_row else 0
    rank = len(shared) + len(free)
    places = {axis: at if at < start else at + len(shared) for at, axis in enumerate(free)}
    rows: Value | None = None
    fixed = np.zeros((1,) * rank, np.int32)
    for axis in range(last + 1):
        step = math.prod(x.shape[axis + 1 : last + 1])
        if axis in places:
            counts = (np.arange(x.shape[axis]) * step).reshape([-1 if at == places[axis] else 1 for at in range(rank)])
            fixed = fixed + counts
            continue
        index = from_front(b, found[axis], x.shape[axis])
        shape = (1,) * start + (1,) * (len(shared) - index.rank) + index.shape + (1,) * (rank - start - len(shared))
        part = Value(b.reshaped(b.dense(index), shape), identity(rank))
        if part.tensor.data is not None:
            fixed = fixed + part.tensor.data.astype(np.int64) * step
            continue
        part = part if step == 1 else mul(b, part, step)
        rows = part if rows is None else add(b, rows, part)
    known = Value(b.constant(fixed.astype(np.int32)), identity(rank))
    if rows is None:
        return known
    return add(b, rows, known) if fixed.any() or fixed.size > 1 else rows


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
