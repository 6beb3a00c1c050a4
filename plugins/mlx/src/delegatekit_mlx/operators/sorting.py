"""Operators that put elements in order."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.expressions import fixed_axes, is_fixed
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Made, Value
from .common import FLOATS, INTEGERS, dropped, sliced, sub, tensor, unary


def _order(b: GraphBuilder, x: Value, axis: int, *, descending: bool) -> Value:
    """The places along an axis in the order of the elements; equal ones stay as they are, NaN is the largest.

    From the largest on, the places are those of the turned tensor, turned and counted from the end.
    """
    if not descending:
        return b.cast(unary(b, schema.ArgsortNode, x, torch.uint32, axis=axis), torch.int64)
    size = x.shape[axis]
    last = b.full((), size - 1, torch.int64)
    turned = unary(b, schema.FlipNode, x, axes=[axis])
    found = unary(b, schema.FlipNode, unary(b, schema.ArgsortNode, turned, torch.uint32, axis=axis), axes=[axis])
    return sub(b, last, b.cast(found, torch.int64))


def _first(b: GraphBuilder, x: Value, axis: int, count: int | None, *, descending: bool) -> tuple[Value, Value]:
    """The elements in order along an axis, or the first of them, and their places."""
    places = _order(b, x, axis, descending=descending)
    if count is not None:
        places = sliced(b, places, axis, 0, count)
    values = b.op(schema.TakeAlongAxisNode, places.shape, x.dtype, x=x, indices=places, axis=axis)
    return values, places


def _sort(b: GraphBuilder, call: Call) -> Made:
    x = tensor(b, call)
    return _first(b, x, axis_of(call["dim"], x.rank), None, descending=call["descending"])


def _largest(b: GraphBuilder, call: Call) -> Made:
    x = tensor(b, call)
    return _first(b, x, axis_of(call["dim"], x.rank), call["k"], descending=call["largest"])


def _kth(b: GraphBuilder, call: Call) -> Made:
    x = tensor(b, call)
    axis, k = axis_of(call["dim"], x.rank), call["k"]
    found = [sliced(b, item, axis, k - 1, k) for item in _first(b, x, axis, k, descending=False)]
    return tuple(found) if call["keepdim"] else tuple(dropped(b, item, [axis]) for item in found)


def fixed_count(call: Call) -> str | None:
    """The number of elements that are kept is fixed."""
    return None if is_fixed(call["k"]) else f"k = {call['k']} changes from call to call"


_SORTED: Final = types_of("self", *FLOATS, *INTEGERS)
_ALONG: Final = (has_axes("self"), fixed_axes("self"))

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("sort.default sort.stable", _sort, _SORTED, has_axes("self")),
    row("topk.default", _largest, _SORTED, *_ALONG, fixed_count),
    row("kthvalue.default", _kth, _SORTED, *_ALONG, fixed_count, keep=True),
)
