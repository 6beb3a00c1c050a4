"""Operators that write elements to known places: scatter, index_put.

All are looked up, among what was there and what is written: TOSA's SCATTER defines no second number for one place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Lower, Value, VgfBuilder
from .common import MOVED, NUMBERS, add, result_type, tensor
from .places import elements_along, integer_indices, places_of, rows_of, same_axes

#: How many numbers may be added at one place: each is an addition of the whole tensor.
_MOST_AT_A_PLACE: Final = 64


def _written(b: VgfBuilder, rows: Value, places: Array, values: Value) -> Value:
    """Rows with others at places; of several for one place, the last."""
    count = rows.shape[0]
    found = np.arange(count)
    found[places] = count + np.arange(len(places))
    return b.looked_up(b.chain([rows, values], 0), 0, found)


def _added(b: VgfBuilder, rows: Value, places: Array, values: Value) -> Value:
    """Rows with others added at places: first the first ones of all places, then the second ones, and so on."""
    nothing = b.array(np.zeros((1, rows.shape[1])), rows.tensor.dtype)
    several, turns = b.chain([values, nothing], 0), _turns(places.tolist())
    for turn in range(turns.max(initial=-1) + 1):
        found = np.full(rows.shape[0], len(places))
        now = np.flatnonzero(turns == turn)
        found[places[now]] = now
        rows = add(b, rows, b.looked_up(several, 0, found))
    return rows


def _turns(places: Sequence[int]) -> Array:
    """How often the same place came before each.

    >>> _turns([3, 1, 3, 3]).tolist()
    [0, 0, 1, 2]
    """
    seen: Counter[int] = Counter()
    found = np.empty(len(places), np.int64)
    for number, place in enumerate(places):
        found[number] = seen[place]
        seen[place] += 1
    return found


def _known(places: Value) -> Array:
    data = places.tensor.data
    assert data is not None, "the support table takes constants"
    return data.reshape(-1).astype(np.int64)


def _index_put(b: VgfBuilder, call: Call) -> Value:
    x, found = tensor(b, call), indices_of(call)
    rows, places = rows_of(b, x, found), places_of(b, x, found)
    order = [*found, *(axis for axis in range(len(x.order)) if axis not in found)]
    rest = [x.shape[axis] for axis in order[len(found) :]]
    first, count = axis_of_indices(found), len(places.shape)
    wide = b.expanded(tensor(b, call, "values"), [*rest[:first], *places.shape, *rest[first:]])
    behind = [*range(first), *range(first + count, count + len(rest))]
    values = b.shaped(wide.permuted([*range(first, first + count), *behind]), [math.prod(places.shape), rows.shape[1]])
    made = (_added if call["accumulate"] else _written)(b, rows, _known(places), values)
    front = b.shaped(made, [x.shape[axis] for axis in order])
    return front.permuted([order.index(axis) for axis in range(len(order))])


def _along(b: VgfBuilder, call: Call) -> Value:
    """Elements at an index's places along an axis, of a source that may be larger than the index."""
    x, index = tensor(b, call), call["index"]
    axis = axis_of(call["dim"], len(x.order))
    if call.has("src"):
        source = tensor(b, call, "src")
        for at, size in enumerate(index.shape):
            source = b.cut(source, at, 0, size) if size < source.shape[at] else source
    else:
        source = b.array(np.full(index.shape, call["value"]), result_type(call))
    put = _added if call.operator == "aten.scatter_add.default" else _written
    places, rows = _known(elements_along(b, x, axis, index)), b.shaped(x, [math.prod(x.shape), 1])
    return b.shaped(put(b, rows, places, b.shaped(source, [math.prod(index.shape), 1])), x.shape)


def known_places(call: Call) -> str | None:
    """The places are known: TOSA defines no second number for one place, which computed ones may have."""
    given = [call["index"]] if call.has("index") else [item for item in call["indices"] if item is not None]
    return next((f"the places {item.name} are computed" for item in given if not item.is_constant), None)


def few_at_a_place(call: Call) -> str | None:
    """What is added is of 32 bits or floating-point, and at most 64 numbers at one place."""
    if call.has("accumulate") and not call["accumulate"]:
        return None
    if (refused := NUMBERS(call)) is not None:
        return refused
    most = _most_at_a_place(call)
    return None if most <= _MOST_AT_A_PLACE else f"{most} numbers are added at one place"


def _most_at_a_place(call: Call) -> int:
    """The most numbers that are written to one place."""
    shape = call["self"].shape
    if call.has("index"):
        places = call["index"].constant.numpy()
        columns = list(np.indices(places.shape))
        columns[axis_of(call["dim"], len(shape))] = places
        sizes = shape
    else:
        found = indices_of(call)
        known = [item.constant for item in found.values() if item.constant is not None]
        columns = list(np.broadcast_arrays(*(item.numpy() for item in known)))
        sizes = tuple(shape[axis] for axis in found)
    # (Places that count from the end are those that wrap around.)
    flat = np.ravel_multi_index(tuple(columns), sizes, mode="wrap")
    return int(np.unique(flat, return_counts=True)[1].max(initial=0))


_PLACES: Final = (has_axes("self"), has_axes("index"), same_axes, known_places)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("scatter.src scatter.value", _along, MOVED, *_PLACES, passenger=True),
    row("scatter_add.default", _along, *_PLACES, few_at_a_place),
    row("index_put.default", _index_put, MOVED, integer_indices, known_places, few_at_a_place, passenger=True),
)
