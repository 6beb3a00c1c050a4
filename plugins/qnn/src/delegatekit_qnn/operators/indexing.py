"""Operators that look elements up."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar, Tensor
from ..ir.types import MAX_RANK, DataType
from ..ir.values import Value
from .common import ANY, INTEGERS, binary, broadcast, has_axes, operation, types_of
from .program import Lower, ProgramBuilder
from .shape import concatenated, tiled


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


def from_front(b: ProgramBuilder, operand: Operand, size: int) -> Tensor:
    """Places along an axis of this size, counted from the front, as the tensor has them."""
    known = operand.constant
    if known is not None:
        return b.constant((known % size).detach().numpy())
    found = Value.dense(b.dense(b.value(operand)))
    behind = binary(b, "ElementWiseAdd", found, size)
    zero = Value(b.scalar(0, found.tensor), ())
    is_front = operation(b, "ElementWiseGreaterEqual", [found, zero], DataType.BOOL)
    return operation(b, "ElementWiseSelect", [is_front, found, behind], found.tensor.datatype).tensor


def _indexed(b: ProgramBuilder, call: Call) -> Value:
    """Along several axes these are moved to the front, and the result's axes where PyTorch has them."""
    found = {axis: item for axis, item in enumerate(call["indices"]) if item is not None}
    x = b.value(call["self"])
    datatype = x.tensor.datatype
    if datatype is DataType.BOOL:
        x = Value(b.cast(x.tensor, DataType.INT32), x.order)
    result = _at_once(b, call, x, found) if len(found) > 1 else _along_one(b, call, x, found)
    return Value(b.cast(result.tensor, datatype), result.order) if datatype is DataType.BOOL else result


def _along_one(b: ProgramBuilder, call: Call, x: Value, found: dict[int, Operand]) -> Value:
    ((axis, index),) = found.items()
    places = from_front(b, index, x.shape[axis])
    return looked_up(b, b.dense(x), axis, places, tuple(call.result.shape))


def _at_once(b: ProgramBuilder, call: Call, x: Value, found: dict[int, Operand]) -> Value:
    shape = broadcast(*(index.shape for index in found.values()))
    parts = []
    for axis, index in found.items():
        places = from_front(b, index, x.shape[axis])
        widened = b.reshaped(places, (1,) * (len(shape) - index.rank) + tuple(index.shape))
        parts.append(Value.dense(b.reshaped(tiled(b, widened, shape), (math.prod(shape), 1))))
    # Rows of places: the compiler has no room for more axes.
    joined = concatenated(b, parts, 1)
    order = (*found, *(axis for axis in range(x.rank) if axis not in found))
    source = b.stored(x, order)
    rest = source.shape[len(found) :]
    sizes = (*shape, *rest)
    made = b.emit(
        "GatherNd",
        [source, b.dense(joined)],
        (math.prod(shape), *rest),
        source.datatype,
        source.encoding,
        batch_dims=Scalar(DataType.UINT32, 0),
    )
    first = min(found)
    value = Value.dense(b.reshaped(made, sizes))
    if not first or list(found) != list(range(first, first + len(found))):
        return value
    axes = len(shape)
    return value.permuted((*range(axes, axes + first), *range(axes), *range(axes + first, len(sizes))))


def integer_indices(call: Call) -> str | None:
    """The indices are integers."""
    found = [item for item in call["indices"] if item is not None]
    wrong = next((item for item in found if item.dtype_name not in INTEGERS), None)
    if wrong is not None:
        return f"an index is {wrong.dtype_name}: integers are taken"
    most = max((item.rank for item in found), default=0)
    if len(found) > 1 and most >= MAX_RANK:
        return f"several indices of {most} axes"
    return None if found else "nothing is indexed"


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
    row("index.Tensor", _indexed, ANY, has_axes("self"), integer_indices, passenger=True, moves=True),
    row(
        "gather.default", _gathered, ANY, has_axes("self"), has_axes("index"), known_places, passenger=True, moves=True
    ),
)
