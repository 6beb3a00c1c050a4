"""Operators that look elements up: embedding, index_select, indexing by one tensor."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import axis_of, indices_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.tosa import Add, Maximum, Minimum

from ..ir.builder import Lower, Value, VgfBuilder
from .common import MOVED, REALS, tensor


def _at(b: VgfBuilder, x: Value, axis: int, indices: Operand) -> Value:
    """Slices along an axis at places that count from the front, or backwards from the end."""
    size, known = x.shape[axis], indices.constant
    if known is not None:
        places = known.numpy().reshape(-1)
        found = b.looked_up(x, axis, np.where(places < 0, places + size, places))
    else:
        given = b.value(indices)
        zero = b.term(0, given)
        front = b.choice(b.less(given, zero), b.apply(Add(), given, b.term(size, given)), given)
        # TOSA does not define what is read beyond the end.
        front = b.apply(Minimum(), b.apply(Maximum(), front, zero), b.term(size - 1, given))
        found = b.looked_up(x, axis, front)
    return b.shaped(found, [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def _embedding(b: VgfBuilder, call: Call) -> Value:
    return _at(b, tensor(b, call, "weight"), 0, call["indices"])


def _index_select(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return b.shaped(_at(b, x, axis_of(call["dim"], len(x.order)), call["index"]), call.result.shape)


def _index(b: VgfBuilder, call: Call) -> Value:
    ((axis, index),) = indices_of(call).items()
    return _at(b, tensor(b, call), axis, index)


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
    row("index.Tensor", _index, MOVED, one_index, passenger=True),
)
