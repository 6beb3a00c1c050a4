"""Operators that put values into a copy of a tensor at computed places, as caches of keys and values are updated."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, INTEGERS
from .indexing import from_front
from .program import Lower, ProgramBuilder
from .shape import tiled


def _replaced(call: Call) -> tuple[int, Operand]:
    """The axis and the index."""
    ((axis, index),) = [(axis, item) for axis, item in enumerate(call["indices"]) if item is not None]
    return axis, index


def _put(b: ProgramBuilder, call: Call) -> Value:
    axis, index = _replaced(call)
    shape = tuple(call.result.shape)
    places = from_front(b, index, shape[axis])
    count = math.prod(index.shape)
    wide = (*shape[:axis], count, *shape[axis + 1 :])
    x, values = (b.floats(b.value(call[name])) for name in ("self", "values"))
    target = b.dense(x)
    datatype = target.datatype
    column = b.reshaped(places, (1,) * axis + (count,) + (1,) * (len(shape) - axis - 1))
    indices = tiled(b, column, wide)
    source = b.dense(values)
    given = (*shape[:axis], *index.shape, *shape[axis + 1 :])
    source = tiled(b, b.reshaped(source, (1,) * (len(given) - values.rank) + values.shape), given)
    source = b.reshaped(source, wide)
    held = DataType.INT32 if datatype is DataType.BOOL else datatype
    made = b.emit(
        "ScatterElements",
        [b.cast(target, held), indices, b.cast(source, held)],
        shape,
        held,
        axis=Scalar(DataType.UINT32, axis),
        reduction=Scalar(DataType.UINT32, 0),
    )
    return Value(b.cast(made, datatype), identity(len(shape)))


def rows_along_one_axis(call: Call) -> str | None:
    """Whole rows along one axis, which integers choose, are replaced by values, which are not added up."""
    if call["accumulate"]:
        return "values are added up"
    given = [item for item in call["indices"] if item is not None]
    if len(given) != 1:
        return f"{len(given)} axes are indexed at once: one is taken"
    if given[0].dtype_name not in INTEGERS:
        return f"the index is {given[0].dtype_name}: integers are taken"
    return None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "index_put.default",
        _put,
        ANY,
        rows_along_one_axis,
        special_values="an index out of bounds is no error, and of several rows for one place any may count",
    ),
)
