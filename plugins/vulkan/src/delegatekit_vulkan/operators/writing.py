"""Operators that put values into a copy of a tensor at computed places, as caches of keys and values are updated.

The runtime has no such operator that takes places from a tensor: each row of the result is looked up among the new ones
or is the old one.
"""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.sizes import Dynamic, Size, dynamic_count, largest
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor, constant
from ..ir.stock import MAX
from ..ir.types import TEXTURE_RANK, DataType
from .common import (
    FLOATS,
    INTEGERS,
    add,
    binary,
    clamp,
    compared,
    converted,
    flattened,
    looked_up,
    mul,
    sub,
    types,
    where,
)
from .program import Lower, ProgramBuilder
from .reductions import reduced

#: Operators whose index does not count from the end.
_FROM_START: Final = frozenset(("aten.index_copy.default", "aten.index_copy_.default"))
#: Float32 counts so far exactly.
_MOST_ROWS: Final = 1 << 24


def rows_along_one_axis(call: Call) -> str | None:
    """Whole rows along one axis, which integers choose, are replaced by values, which are not added up."""
    given = [(axis, item) for axis, item in enumerate(call["indices"]) if item is not None]
    if call["accumulate"] or len(given) != 1:
        return "values are added up" if call["accumulate"] else f"{len(given)} axes are indexed at once: one is taken"
    ((axis, index),) = given
    if index.dtype_name not in INTEGERS:
        return f"the index is {index.dtype_name}: integers are taken"
    size = shape_of(call["self"])[axis]
    if isinstance(size, Dynamic) or size > _MOST_ROWS:
        return f"rows of {size} are replaced: {_MOST_ROWS} are the most, and as many in every call"
    if index.rank != 1 and dynamic_count(shape_of(index)):
        return f"the index {index.shape} has several axes, and a size that changes"
    return None


def whole_values(call: Call) -> str | None:
    """Values have the sizes of what they replace, where one of these changes."""
    values, replaced = shape_of(call["values"]), _replaced(call)[2]
    if (dynamic_count(values) or dynamic_count(replaced)) and values != replaced:
        return f"values {call['values'].shape} are repeated, to a size that changes or from one"
    return None


def _replaced(call: Call) -> tuple[int, Operand, tuple[Size, ...]]:
    """The axis, the index, and the sizes of what is replaced."""
    ((axis, index),) = [(axis, item) for axis, item in enumerate(call["indices"]) if item is not None]
    shape = shape_of(call["self"])
    return axis, index, (*shape[:axis], *shape_of(index), *shape[axis + 1 :])


def _put(b: ProgramBuilder, call: Call) -> Tensor:
    x, (axis, index, replaced) = b.tensor(call["self"]), _replaced(call)
    shape, size = x.shape, x.sizes[axis]
    from_start = call.node.meta.get("source_operator") in _FROM_START
    values = b.tensor(call["values"])
    if values.shape != replaced:
        values = b.call("aten.expand_copy.default", [values, tuple(map(largest, replaced)), False], replaced)
    count = flattened(shape_of(index))
    values = b.view(values, (*shape[:axis], count, *shape[axis + 1 :]))
    column = (size, *[1] * (x.rank - axis - 1))

    def choose() -> tuple[Tensor, Tensor | None]:
        found = b.view(b.tensor(index), (count,))
        return _chosen(b, found if from_start else _from_start(b, index, found, size), column)

    # The layers of a model write their caches at the same places.
    kept, source = b.shared.once(("rows", index, column, from_start), choose)
    rows = values if source is None else looked_up(b, values, axis, source)
    # The old value is the first of the two: there the runtime finds the result's sizes.
    return where(b, kept, x, rows)


def _from_start(b: ProgramBuilder, index: Operand, found: Tensor, size: int) -> Tensor:
    """The index, -1 as size - 1."""
    known = index.constant
    if known is not None:
        return found if not bool((known < 0).any()) else b.computed(b.constant((known % size).reshape(found.sizes)))
    behind = converted(b, compared(b, "lt", found, 0), found.datatype)
    return add(b, found, mul(b, behind, size))


def _chosen(b: ProgramBuilder, index: Tensor, column: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
    """Booleans of the rows that are kept, in the shape `column`, and the new row for each other one.

    The latter is None where there is one only.
    """
    size, count = column[0], index.shape[0]
    numbers = torch.arange(size, dtype=torch.int32)
    if count == 1:
        held = b.computed(b.constant(numbers.reshape(column)))
        found = b.call("aten.eq.Tensor", [held, index], column, DataType.BOOL)
        return b.call("aten.logical_not.default", [found], column), None
    held = b.computed(b.constant(numbers.reshape(size, 1)))
    found = b.call("aten.eq.Tensor", [held, b.view(index, (1, count))], (size, count), DataType.BOOL)
    # Of several new rows for one place the last counts. In float32 also where activations are float16.
    order = b.computed(constant(torch.arange(1.0, index.sizes[0] + 1).reshape(1, -1)))
    if isinstance(count, Dynamic):
        order = b.call("aten.slice_copy.Tensor", [order, 1, 0, b.size(index, 0), 1], (1, count))
    marks = binary(b, "aten.mul.Tensor", converted(b, found, DataType.FLOAT32), order)
    last = reduced(b, MAX, marks, (1,))
    before = sub(b, b.view(last, (size,)), b.computed(constant(torch.tensor(1.0))))
    return compared(b, "eq", b.view(last, column), 0), converted(b, clamp(b, before, 0.0, None), DataType.INT32)


def few_axes(call: Call) -> str | None:
    """At most 4 axes: the runtime keeps operands in textures."""
    item = call["self"]
    return f"{item.name} has {item.rank} axes: {TEXTURE_RANK} are taken" if item.rank > TEXTURE_RANK else None


def same_changing_sizes(call: Call) -> str | None:
    """The copied tensor is not repeated where sizes change."""
    source = call["src"]
    changing = call.is_dynamic and shape_of(source) != shape_of(call.result)
    return f"src {source.shape} is repeated to {call.result.shape}" if changing else None


def _copy(b: ProgramBuilder, call: Call) -> Tensor:
    source = converted(b, b.tensor(call["src"]), b.result_type(call))
    if source.shape == b.shape(call):
        return source
    return b.call("aten.expand_copy.default", [source, tuple(map(largest, b.shape(call))), False], b.shape(call))


def missed_rows(call: Call) -> str:
    """Indices that eager mode refuses."""
    return "an index out of bounds replaces nothing, and is no error"


_TYPES: Final = types(*FLOATS, *INTEGERS, "bool")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row(
        "index_put.default",
        _put,
        _TYPES,
        rows_along_one_axis,
        whole_values,
        few_axes,
        passenger=True,
        runs=("aten.index.Tensor", "aten.where.self"),
        special_values=missed_rows,
    ),
    row("copy.default", _copy, _TYPES, same_changing_sizes, passenger=True),
)
