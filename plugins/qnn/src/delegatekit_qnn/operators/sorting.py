"""Operators that put elements in order."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar, Tensor
from ..ir.types import DataType
from ..ir.values import Value
from .common import as_numbers, as_type
from .moves import dropped, sliced
from .program import Lower, ProgramBuilder
from .reductions import EQUAL, flag, rows_of_last


def ordered(b: ProgramBuilder, x: Value, axis: int, count: int, *, largest: bool) -> tuple[Value, Value]:
    """The largest or least elements along an axis in order, and their places."""
    like, x = x, as_numbers(b, x)
    last = (*(item for item in range(x.rank) if item != axis), axis)
    tensor = b.stored(x, last)
    rows = rows_of_last(tensor.shape) if x.rank > 4 else tensor.shape
    shape = (*rows[:-1], count)
    found = b.emit_all(
        "TopK",
        [b.reshaped(tensor, rows)],
        [Tensor(shape, tensor.datatype, tensor.encoding), Tensor(shape, DataType.INT32)],
        k=Scalar(DataType.UINT32, count),
        largest=flag(largest),
    )
    values, places = (Value(b.reshaped(item, (*tensor.shape[:-1], count)), last) for item in found)
    return as_type(b, values, like), places


def _largest(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    x = b.activation(call["self"])
    return ordered(b, x, axis_of(call["dim"], x.rank), call["k"], largest=bool(call["largest"]))


def _sorted(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    x = b.activation(call["self"])
    axis = axis_of(call["dim"], x.rank)
    return ordered(b, x, axis, x.shape[axis], largest=bool(call["descending"]))


def _ranked(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    """The k-th least along an axis, or the middle one, and where it is."""
    x = b.activation(call["self"])
    axis = axis_of(call["dim"], x.rank)
    rank = call["k"] if call.has("k") else (x.shape[axis] + 1) // 2
    values, places = (sliced(b, item, axis, rank - 1, rank) for item in ordered(b, x, axis, rank, largest=False))
    return (values, places) if call["keepdim"] else (dropped(b, values, axis), dropped(b, places, axis))


def _middle(b: ProgramBuilder, call: Call) -> Value:
    x = b.activation(call["self"])
    size = math.prod(x.shape)
    flat = Value(b.reshaped(b.dense(x), (size,)), (0,))
    rank = (size + 1) // 2
    return dropped(b, sliced(b, ordered(b, flat, 0, rank, largest=False)[0], 0, rank - 1, rank), 0)


def unused_places(call: Call) -> str | None:
    """With stable=True, the places are not used: QNN does not say in which order equal elements come."""
    used = any(user.operator == "getitem" and user.node.args[1] == 1 for user in call.users)
    return "the places of a stable order are used" if call.get("stable") and used else None


_AXES: Final = has_axes("self")
#: Integers are ordered as float32: beyond 2 ** 24 it does not tell neighbors apart.
_NUMBERS: Final = types_of("self", "float32", "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("topk.default", _largest, _NUMBERS, _AXES, special_values=EQUAL),
    row("kthvalue.default", _ranked, _NUMBERS, _AXES, special_values=EQUAL),
    row("median.dim", _ranked, _NUMBERS, _AXES, special_values=EQUAL),
    row("median.default", _middle, _NUMBERS, _AXES, special_values=EQUAL),
    row("sort.default sort.stable", _sorted, _NUMBERS, _AXES, unused_places, special_values=EQUAL),
)
