"""Operators that write elements to places that other tensors name: scatter, index_put."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar, Tensor
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, INTEGERS, add, as_numbers, as_type, compared, div, larger, mul, where
from .dialect import truth
from .moves import alike, from_front, rows_of, sliced, something_indexed, tiled
from .program import Lower, ProgramBuilder

#: How QNN joins what is written with what is there.
_REPLACE: Final = 0
_ADD: Final = 1
_MULTIPLY: Final = 2
#: Names of products among the ways of joining.
_PRODUCTS: Final = ("prod", "multiply")


def order_of_writes(call: Call) -> str:
    """Arguments whose results are not PyTorch's."""
    return "of several numbers for one place, any may stay"


# -- along an axis -----------------------------------------------------------------------------------------------------


def _places(b: ProgramBuilder, call: Call, shape: tuple[int, ...]) -> Value:
    """The flat positions of an index along an axis."""
    index, along = b.value(call["index"]), axis_of(call["dim"], len(shape))
    steps = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    base = np.zeros(index.shape, np.int32)
    for axis, size in enumerate(index.shape):
        if axis != along:
            base += (np.arange(size, dtype=np.int32) * steps[axis]).reshape(
                [-1 if at == axis else 1 for at in range(len(shape))]
            )
    index = index if steps[along] == 1 else mul(b, index, steps[along])
    return add(b, index, Value(b.constant(base), identity(len(shape))))


def _written(b: ProgramBuilder, rows: Tensor, places: Value, source: Tensor, reduction: int) -> Tensor:
    """Rows of shape (n, ...) with others of shape (places, ...) at places; each place is one row."""
    count = math.prod(places.shape)
    indices = b.reshaped(b.dense(places), (count, 1))
    updates = b.reshaped(source, (count, *rows.shape[1:]))
    return b.emit(
        "ScatterNd",
        [rows, indices, updates],
        rows.shape,
        rows.datatype,
        rows.encoding,
        reduction=Scalar(DataType.UINT32, reduction),
    )


def _source(b: ProgramBuilder, call: Call, like: Value) -> Value:
    """The values to write, cut to the size of the index; PyTorch accepts more."""
    shape = call["index"].shape
    found = call["src"] if call.has("src") else call["value"]
    if not isinstance(found, Operand):
        constant = b.scalar(found, like.tensor)
        return Value(tiled(b, b.reshaped(constant, (1,) * len(shape)), list(shape)), identity(len(shape)))
    source = as_numbers(b, b.value(found))
    for axis, size in enumerate(shape):
        source = sliced(b, source, axis, 0, size)
    return source


def _scatter(reduction: int) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Value:
        like = b.floats(b.value(call["self"]))
        x = as_numbers(b, like)
        source = b.floats(_source(b, call, x))
        rows = b.reshaped(b.dense(x), (math.prod(x.shape), 1))
        made = _written(b, rows, _places(b, call, x.shape), b.dense(source), reduction)
        return as_type(b, Value(b.reshaped(made, x.shape), identity(x.rank)), like)

    return lower


def _scatter_reduced(b: ProgramBuilder, call: Call) -> Value:
    """Sums, products and means of what is written to each place, with what was there or without."""
    x = b.floats(b.value(call["self"]))
    source = b.dense(b.floats(_source(b, call, x)))
    places, how = _places(b, call, x.shape), call["reduce"]
    rows = Value(b.reshaped(b.dense(x), (math.prod(x.shape), 1)), (0, 1))
    included = bool(call.get("include_self", True))
    ones = np.ones(source.shape, np.float32)
    counts = None
    if how == "mean" or not included:
        before = b.constant(np.full(rows.shape, 1.0 if included else 0.0, np.float32))
        counts = Value(_written(b, before, places, b.constant(ones), _ADD), (0, 1))
        if not included:
            start = 1.0 if how in _PRODUCTS else 0.0
            rows = where(b, compared(b, "Greater", counts, 0), start, rows)
    found = Value(_written(b, rows.tensor, places, source, _MULTIPLY if how in _PRODUCTS else _ADD), (0, 1))
    if how == "mean" and counts is not None:
        found = div(b, found, larger(b, counts, 1))
    return Value(b.reshaped(found.tensor, x.shape), identity(x.rank))


def joined_by(call: Call) -> str | None:
    """Sums, products and means: the processor keeps no largest or least where it writes."""
    return f"reduce = {call['reduce']}" if call["reduce"] not in (*_PRODUCTS, "sum", "add", "mean") else None


def sums_of_floats(call: Call) -> str | None:
    """Summands are float32: the processor adds integers as floats, which does not tell large ones apart."""
    return f"{call['self'].dtype_name} is added: float32 is taken" if call["self"].dtype_name != "float32" else None


def sums_where_added(call: Call) -> str | None:
    """Summands are float32."""
    return sums_of_floats(call) if call["accumulate"] else None


def _put(b: ProgramBuilder, call: Call) -> Value:
    """At places among all elements."""
    like = b.floats(b.value(call["self"]))
    x, source = as_numbers(b, like), as_numbers(b, b.floats(b.value(call["source"])))
    count = math.prod(x.shape)
    rows = b.reshaped(b.dense(x), (count, 1))
    places = from_front(b, call["index"], count)
    made = _written(b, rows, places, b.dense(source), _ADD if call["accumulate"] else _REPLACE)
    return as_type(b, Value(b.reshaped(made, x.shape), identity(x.rank)), like)


# -- at places of several axes -----------------------------------------------------------------------------------------


def places_or_mask(call: Call) -> str | None:
    """Indices are integers; or one mask, with one value, without accumulate."""
    found = indices_of(call)
    if any(item.dtype_name == "bool" for item in found.values()):
        if len(found) > 1 or math.prod(call["values"].shape) != 1 or call["accumulate"]:
            return "a mask with several values, or beside other indices: how many are written depends on the mask"
        return None
    return something_indexed(call) or sums_where_added(call)


def _index_put(b: ProgramBuilder, call: Call) -> Value:
    found = indices_of(call)
    if any(item.dtype_name == "bool" for item in found.values()):
        return _put_at_mask(b, call, found)
    like, values = alike(b, call, [b.value(call["self"]), b.value(call["values"])])
    x, values = as_numbers(b, like), as_numbers(b, values)
    last = max(found)
    rest = x.shape[last + 1 :]
    places = rows_of(b, x, found)
    wanted = (*places.shape, *rest) or (1,)
    source = b.reshaped(b.dense(values), (1,) * (len(wanted) - values.rank) + values.shape)
    source = tiled(b, source, [new // old for new, old in zip(wanted, source.shape, strict=True)])
    rows = b.reshaped(b.dense(x), (math.prod(x.shape[: last + 1]), math.prod(rest)))
    made = _written(b, rows, places, source, _ADD if call["accumulate"] else _REPLACE)
    return as_type(b, Value(b.reshaped(made, x.shape), identity(x.rank)), like)


def _put_at_mask(b: ProgramBuilder, call: Call, found: dict[int, Operand]) -> Value:
    """One value wherever a mask holds."""
    like, value = alike(b, call, [b.value(call["self"]), b.value(call["values"])])
    x, value = as_numbers(b, like), as_numbers(b, value)
    ((axis, operand),) = found.items()
    mask = truth(b, b.value(operand))
    shape = (1,) * axis + mask.shape + (1,) * (x.rank - axis - mask.rank)
    mask = Value(b.reshaped(b.dense(mask), shape), identity(x.rank))
    value = Value(b.reshaped(b.dense(value), (1,)), ())
    return as_type(b, where(b, mask, value, x), like)


def same_axes(call: Call) -> str | None:
    """self and index have axes."""
    return has_axes("self")(call) or has_axes("index")(call)


_TYPED: Final = types_of("self", "float32", *INTEGERS, "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("scatter.src scatter.value", _scatter(_REPLACE), ANY, same_axes, special_values=order_of_writes),
    row("scatter_add.default", _scatter(_ADD), ANY, same_axes, sums_of_floats),
    row(
        "scatter_reduce.two scatter.reduce scatter.value_reduce",
        _scatter_reduced,
        ANY,
        same_axes,
        joined_by,
        sums_of_floats,
    ),
    row(
        "put.default",
        _put,
        types_of("self", "float32", *INTEGERS, "bool"),
        sums_where_added,
        special_values=order_of_writes,
    ),
    row("index_put.default", _index_put, _TYPED, places_or_mask, special_values=order_of_writes, moves=True),
)
