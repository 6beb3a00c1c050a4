"""Operators that look elements up: embedding, index_select, gather, indexing by one tensor."""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Add, DType, Maximum, Minimum

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
    ((axis, index),) = indices_of(call).items()
    return _at(b, tensor(b, call), axis, index)


def _gather(b: VgfBuilder, call: Call) -> Value:
    """Looked up among all elements: places along the axis, and those of the result along the others."""
    x, index = tensor(b, call), call["index"]
    axis, counts = axis_of(call["dim"], len(x.order)), index.shape
    steps = [math.prod(x.shape[at + 1 :]) for at in range(len(counts))]
    others = [(np.arange(count) if at != axis else np.zeros(1)) * steps[at] for at, count in enumerate(counts)]
    base = functools.reduce(np.add.outer, others)
    places = _from_front(b, index, x.shape[axis])
    if (known := places.tensor.data) is not None:
        places = b.array(known * steps[axis] + base, DType.INT32)
    else:
        places = add(b, mul(b, places, steps[axis]), b.array(base, DType.INT32))
    found = b.looked_up(b.shaped(x, [math.prod(x.shape)]), 0, b.shaped(places, [math.prod(counts)]))
    return b.shaped(found, call.result.shape)


def same_axes(call: Call) -> str | None:
    """An index of as many axes as the tensor."""
    return None if call["self"].rank == call["index"].rank else "an index with other axes"


def one_index(call: Call) -> str | None:
    """One tensor of integers."""
    found = indices_of(call)
    if len(found) != 1:
        return f"{len(found)} tensors of indices: one is taken"
    (index,) = found.values()
    return "an index is a mask" if index.dtype_name == "bool" else None


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("embedding.default", _embedding, types_of("weight", *REALS)),
    row("index_select.default", _index_select, MOVED, has_axes("self"), passenger=True),
    row("gather.default", _gather, MOVED, has_axes("self"), same_axes, passenger=True),
    row("index.Tensor", _index, MOVED, one_index, passenger=True),
)
