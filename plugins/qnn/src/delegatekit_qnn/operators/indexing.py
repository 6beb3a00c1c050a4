"""Operators that look elements up."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar, Tensor
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, has_axes, types_of
from .program import Lower, ProgramBuilder


def looked_up(b: ProgramBuilder, source: Tensor, axis: int, indices: Tensor, shape: tuple[int, ...]) -> Value:
    """Slices along an axis, by their places."""
    made = b.emit(
        "Gather",
        [source, indices],
        shape,
        source.datatype,
        source.encoding,
        axis=Scalar(DataType.INT32, axis),
    )
    return Value(made, identity(len(shape)))


def _embedding(b: ProgramBuilder, call: Call) -> Value:
    table = b.activation(call["weight"])
    indices = b.dense(b.value(call["indices"]))
    return looked_up(b, b.dense(table), 0, indices, tuple(call.result.shape))


def _selected(b: ProgramBuilder, call: Call) -> Value:
    x = b.value(call["self"])
    indices = b.reshaped(b.dense(b.value(call["index"])), (call.result.shape[axis_of(call["dim"], x.rank)],))
    return looked_up(b, b.dense(x), axis_of(call["dim"], x.rank), indices, tuple(call.result.shape))


def _gathered(b: ProgramBuilder, call: Call) -> Value:
    x = b.value(call["self"])
    tensor, indices = b.dense(x), b.dense(b.value(call["index"]))
    made = b.emit(
        "GatherElements",
        [tensor, indices],
        indices.shape,
        tensor.datatype,
        tensor.encoding,
        axis=Scalar(DataType.UINT32, axis_of(call["dim"], x.rank)),
    )
    return Value(made, identity(x.rank))


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
    row("index_select.default", _selected, ANY, has_axes("self"), known_places, passenger=True, moves=True),
    row(
        "gather.default", _gathered, ANY, has_axes("self"), has_axes("index"), known_places, passenger=True, moves=True
    ),
)
