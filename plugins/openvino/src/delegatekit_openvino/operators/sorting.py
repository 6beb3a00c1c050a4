"""Operators that put elements in order."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.expressions import fixed_axes
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Made, ModelBuilder
from ..ir.sizes import is_fixed
from .common import FLOATS, NUMBERS, REAL, SORTED, composed, dropped, in_order, lost_nan, sliced, tensor


def place_of_nan(call: Call) -> str:
    """Elements whose order is not PyTorch's."""
    return "the place of NaN is any" if call["self"].dtype_name in FLOATS else ""


def _sort(b: ModelBuilder, call: Call) -> Made:
    x = tensor(b, call)
    axis = axis_of(call["dim"], x.rank)
    size = x.shape[axis]
    assert isinstance(size, int)
    return in_order(b, x, axis, size, ascending=not call["descending"])


def _largest(b: ModelBuilder, call: Call) -> Made:
    x = tensor(b, call)
    return in_order(b, x, axis_of(call["dim"], x.rank), call["k"], ascending=not call["largest"])


def _kth(b: ModelBuilder, call: Call) -> Made:
    x = tensor(b, call)
    axis, k = axis_of(call["dim"], x.rank), call["k"]
    found = [sliced(b, item, axis, k - 1, k) for item in in_order(b, x, axis, k, ascending=True)]
    return tuple(found) if call["keepdim"] else tuple(dropped(b, item, [axis]) for item in found)


def fixed_count(call: Call) -> str | None:
    """The number of elements that are kept is fixed."""
    return None if is_fixed(call["k"]) else f"k = {call['k']} changes from call to call"


_ALONG: Final = (has_axes("self"), fixed_axes("self"))


def _records(which: str) -> Lower:
    return composed(getattr(along, which), arguments="dim")


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("sort.default sort.stable", _sort, SORTED, *_ALONG, special_values=place_of_nan),
    row("topk.default", _largest, SORTED, *_ALONG, fixed_count, special_values=place_of_nan),
    row("kthvalue.default", _kth, SORTED, *_ALONG, fixed_count, keep=True, special_values=place_of_nan),
    row("cumprod.default", _records("cumprod"), REAL, *_ALONG, keep=True, static_only=True),
    row("cummax.default", _records("cummax"), NUMBERS, *_ALONG, keep=True, static_only=True, special_values=lost_nan),
    row("cummin.default", _records("cummin"), NUMBERS, *_ALONG, keep=True, static_only=True, special_values=lost_nan),
)
