"""Operators that look elements up: embedding, index_select, gather, indexing by tensors."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, axis_of_indices, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Value, VgfBuilder
from .common import MOVED, REALS, tensor
from .places import (
    elements_along,
    from_front,
    integer_indices,
    places_of,
    rows_of,
    same_axes,
)


def _at(b: VgfBuilder, x: Value, axis: int, indices: Operand) -> Value:
    """Slices along an axis at places that count from the front, or backwards from the end."""
    found = b.looked_up(x, axis, b.shaped(from_front(b, indices, x.shape[axis]), [math.prod(indices.shape)]))
    return b.shaped(found, [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _embedding(b: VgfBuilder, call: Call) -> Value:
    return _at(b, tensor(b, call, "weight"), 0, call["indices"])


def _index_select(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return b.shaped(_at(b, x, axis_of(call["dim"], len(x.order)), call["index"]), call.result.shape)


def _index(b: VgfBuilder, call: Call) -> Value:
    x, found = tensor(b, call), indices_of(call)
    if len(found) == 1:
        ((axis, index),) = found.items()
        return _at(b, x, axis, index)
    places = places_of(b, x, found)
    rows = b.looked_up(rows_of(b, x, found), 0, b.shaped(places, [math.prod(places.shape)]))
    rest = [size for axis, size in enumerate(x.shape) if axis not in found]
    first, count = axis_of_indices(found), len(places.shape)
    behind = [count + axis for axis in range(len(rest))]
    return b.shaped(rows, [*places.shape, *rest]).permuted([*behind[:first], *range(count), *behind[first:]])


def _gather(b: VgfBuilder, call: Call) -> Value:
    x, index = tensor(b, call), call["index"]
    places = elements_along(b, x, axis_of(call["dim"], len(x.order)), index)
    found = b.looked_up(b.shaped(x, [math.prod(x.shape)]), 0, b.shaped(places, [math.prod(index.shape)]))
    return b.shaped(found, call.result.shape)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *REALS)),
    row("index_select.default", _index_select, MOVED, has_axes("self"), passenger=True),
    row("gather.default", _gather, MOVED, has_axes("self"), same_axes, passenger=True),
    row("index.Tensor", _index, MOVED, integer_indices, passenger=True),
)
