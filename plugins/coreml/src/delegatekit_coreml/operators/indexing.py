"""Operators that look elements up: embedding, index_select, gather, indexing by a tensor."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import dtypes, has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import MOST_AXES, DataType
from .common import (
    FLOATS,
    INTEGERS,
    expanded,
    from_front,
    places_of,
    sliced,
    tensor,
)
from .program import Lower, ProgramBuilder


def _looked_up(b: ProgramBuilder, x: Var, axis: int, indices: Var, kind: str = "gather") -> Var:
    """Slices of a value along an axis. MIL looks up no booleans."""
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x = b.cast(x, DataType.INT32)
    return b.cast(b.call(kind, x=x, indices=indices, axis=numbers([axis])[0]), datatype)


def _embedding(b: ProgramBuilder, call: Call) -> Var:
    return _looked_up(b, tensor(b, call, "weight"), 0, tensor(b, call, "indices"))


def _index_select(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.shape))
    return _looked_up(b, x, axis, expanded(b, tensor(b, call, "index"), (call.result.shape[axis],)))


def integer_indices(call: Call) -> str | None:
    """The indices are integers; several have at most 4 axes: their places have one more."""
    found = indices_of(call)
    # The size of the result, which depends on a mask, may be known all the same.
    if any(item.dtype_name == "bool" for item in found.values()):
        return "an index is a mask: integers are taken"
    if len(found) > 1 and max(item.rank for item in found.values()) >= MOST_AXES:
        return f"several indices of {MOST_AXES} axes"
    return None


def _index(b: ProgramBuilder, call: Call) -> Var:
    x, found = tensor(b, call), indices_of(call)
    if len(found) == 1:
        ((axis, index),) = found.items()
        return _looked_up(b, x, axis, from_front(b, index, x.shape[axis]))
    return _looked_up_at_once(b, x, found)


def _looked_up_at_once(b: ProgramBuilder, x: Var, found: dict[int, Operand]) -> Var:
    """Along several axes: they are moved to the front, and the result's axes where PyTorch has them."""
    places, order, shape = places_of(b, x, found)
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x = b.cast(x, DataType.INT32)
    if order != sorted(order):
        x = b.call("transpose", x=x, perm=numbers(order))
    result = b.cast(b.call("gather_nd", x=x, indices=places), datatype)
    first = axis_of_indices(found)
    if not first:
        return result
    axes = len(shape)
    back = [*range(axes, axes + first), *range(axes), *range(axes + first, len(result.shape))]
    return b.call("transpose", x=result, perm=numbers(back))


def _gather(b: ProgramBuilder, call: Call) -> Var:
    """MIL's operands have equal sizes but along the axis; PyTorch's index may be smaller."""
    x, index = tensor(b, call), tensor(b, call, "index")
    axis = axis_of(call["dim"], len(x.shape))
    for other, size in enumerate(index.shape):
        if other != axis:
            x = sliced(b, x, other, 0, size)
    return _looked_up(b, x, axis, index, "gather_along_axis")


_TYPES: Final = dtypes(*FLOATS, *INTEGERS, "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *FLOATS)),
    row("index_select.default", _index_select, _TYPES, has_axes("self"), passenger=True),
    row("index.Tensor", _index, _TYPES, integer_indices, passenger=True),
    row("gather.default", _gather, _TYPES, has_axes("self"), has_axes("index"), passenger=True),
)
