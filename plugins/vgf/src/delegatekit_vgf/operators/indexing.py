"""Operators that look elements up: embedding, index_select, gather, indexing by tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Add, DType, Maximum, Minimum
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Lower, Value, VgfBuilder
from .common import MOVED, REALS, add, mul, tensor


def _at(b: VgfBuilder, x: Value, axis: int, indices: Operand) -> Value:
    """Slices along an axis at places that count from the front, or backwards from the end."""
    found = b.looked_up(x, axis, b.shaped(_from_front(b, indices, x.shape[axis]), [math.prod(indices.shape)]))
    return b.shaped(found, [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _from_front(b: VgfBuilder, indices: Operand, size: int) -> Value:
    """Places among `size` that count from the front, of those that may count from the end."""
    if (known := indices.constant) is not None:
        places = known.numpy()
        return b.array(np.where(places < 0, places + size, places), DType.INT32)
    given = b.value(indices)
    zero = b.term(0, given)
    front = b.choice(b.less(given, zero), b.apply(Add(), given, b.term(size, given)), given)
    # TOSA does not define what is read beyond the end.
    return b.apply(Minimum(), b.apply(Maximum(), front, zero), b.term(size - 1, given))


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
    first, count = place_of_indices(found), len(places.shape)
    behind = [count + axis for axis in range(len(rest))]
    return b.shaped(rows, [*places.shape, *rest]).permuted([*behind[:first], *range(count), *behind[first:]])


def place_of_indices(found: Mapping[int, Operand]) -> int:
    """The axis where the axes of indices stand: where the indexed axes are, if these are neighbors; else in front."""
    first = min(found)
    return first if list(found) == list(range(first, first + len(found))) else 0


def rows_of(b: VgfBuilder, x: Value, found: Mapping[int, Operand]) -> Value:
    """The elements as rows: one for each place in the indexed axes, which are taken as one."""
    front = x.permuted([*found, *(axis for axis in range(len(x.order)) if axis not in found)])
    count = math.prod(x.shape[axis] for axis in found)
    return b.shaped(front, [count, math.prod(front.shape) // max(count, 1)])


def places_of(b: VgfBuilder, x: Value, found: Mapping[int, Operand]) -> Value:
    """The rows that indices name, in the shape to which these broadcast."""
    parts: list[tuple[Value, int]] = []
    step = 1
    for axis, index in reversed(found.items()):
        parts.append((_from_front(b, index, x.shape[axis]), step))
        step *= x.shape[axis]
    return _weighted_sum(b, parts)


def _weighted_sum(b: VgfBuilder, parts: Iterable[tuple[Value, int]]) -> Value:
    """A sum of integers, each with its factor: a constant if all are."""
    known: Array | None = None
    computed: Value | None = None
    for value, factor in parts:
        if value.tensor.data is not None:
            item = b.turned(value).tensor.data * factor
            known = item if known is None else known + item
        else:
            more = value if factor == 1 else mul(b, value, factor)
            computed = more if computed is None else add(b, computed, more)
    constant = None if known is None else b.array(known, DType.INT32)
    if computed is None or constant is None:
        made = computed or constant
        assert made is not None
        return made
    return add(b, computed, constant)


def elements_along(b: VgfBuilder, x: Value, axis: int, index: Operand) -> Value:
    """The places among all elements that an index names: its own along the axis, those of its elements along others."""
    counts = index.shape
    steps = [math.prod(x.shape[at + 1 :]) for at in range(len(counts))]
    others = [(np.arange(count) if at != axis else np.zeros(1)) * steps[at] for at, count in enumerate(counts)]
    base = b.array(functools.reduce(np.add.outer, others), DType.INT32)
    return _weighted_sum(b, [(_from_front(b, index, x.shape[axis]), steps[axis]), (base, 1)])


def _gather(b: VgfBuilder, call: Call) -> Value:
    x, index = tensor(b, call), call["index"]
    places = elements_along(b, x, axis_of(call["dim"], len(x.order)), index)
    found = b.looked_up(b.shaped(x, [math.prod(x.shape)]), 0, b.shaped(places, [math.prod(index.shape)]))
    return b.shaped(found, call.result.shape)


def same_axes(call: Call) -> str | None:
    """An index of as many axes as the tensor."""
    return None if call["self"].rank == call["index"].rank else "an index with other axes"


def integer_indices(call: Call) -> str | None:
    """Some axes are indexed, by integers."""
    found = indices_of(call)
    if not found:
        return "no axes are indexed"
    return "an index is a mask" if any(item.dtype_name == "bool" for item in found.values()) else None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *REALS)),
    row("index_select.default", _index_select, MOVED, has_axes("self"), passenger=True),
    row("gather.default", _gather, MOVED, has_axes("self"), same_axes, passenger=True),
    row("index.Tensor", _index, MOVED, integer_indices, passenger=True),
)
