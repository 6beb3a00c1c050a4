"""Places that indices name: their numbers, the elements and rows that they stand for, and the conditions on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import indices_of
from delegatekit_toolkit.tosa import Add, DType, Maximum, Minimum
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Value, VgfBuilder
from .common import add, mul


def from_front(b: VgfBuilder, indices: Operand, size: int) -> Value:
    """Places among `size` that count from the front, of those that may count from the end."""
    if (known := indices.constant) is not None:
        places = known.numpy()
        return b.array(np.where(places < 0, places + size, places), DType.INT32)
    given = b.value(indices)
    zero = b.term(0, given)
    front = b.choice(b.less(given, zero), b.apply(Add(), given, b.term(size, given)), given)
    # TOSA does not define what is read beyond the end.
    return b.apply(Minimum(), b.apply(Maximum(), front, zero), b.term(size - 1, given))


def rows_of(b: VgfBuilder, x: Value, found: Mapping[int, Operand]) -> Value:
    """The elements as rows: one for each place in the indexed axes, which are taken as one."""
    front = x.permuted([*found, *(axis for axis in range(len(x.order)) if axis not in found)])
    count = math.prod(x.shape[axis] for axis in found)
    return b.shaped(front, [count, math.prod(front.shape) // max(count, 1)])


def places_of(b: VgfBuilder, x: Value, found: Mapping[int, Operand]) -> Value:
    """The rows that indices name, in the shape to which these broadcast."""
    parts: list[tuple[Value, int]] = []
    step = 1
    for axis, index in reversed([*found.items()]):
        parts.append((from_front(b, index, x.shape[axis]), step))
        step *= x.shape[axis]
    return _weighted_sum(b, parts)


def _weighted_sum(b: VgfBuilder, parts: Iterable[tuple[Value, int]]) -> Value:
    """A sum of integers, each with its factor: a constant if all are."""
    known: Array | None = None
    computed: Value | None = None
    for value, factor in parts:
        data = b.turned(value).tensor.data
        if data is not None:
            known = data * factor if known is None else known + data * factor
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
    return _weighted_sum(b, [(from_front(b, index, x.shape[axis]), steps[axis]), (base, 1)])


def same_axes(call: Call) -> str | None:
    """An index of as many axes as the tensor."""
    return None if call["self"].rank == call["index"].rank else "an index with other axes"


def integer_indices(call: Call) -> str | None:
    """Some axes are indexed, by integers."""
    found = indices_of(call)
    if not found:
        return "no axes are indexed"
    return "an index is a mask" if any(item.dtype_name == "bool" for item in found.values()) else None
