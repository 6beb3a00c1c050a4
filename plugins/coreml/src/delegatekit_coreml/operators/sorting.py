"""Operators that put elements in order, or keep a record along an axis: sort, topk, medians, running products."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.expressions import fixed_axes
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of, numbers
from ..ir.types import DataType
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    REAL,
    binary,
    composed,
    reduced,
    reshaped,
    sliced,
    tensor,
    where,
)
from .program import Lower, Made, ProgramBuilder

_SORTED: Final = types_of("self", *FLOATS, *INTEGERS, "bool")


def place_of_nan(call: Call) -> str:
    """Elements whose order is not PyTorch's."""
    floats = call["self"].dtype_name in FLOATS
    return "the place of NaN depends on the device" if floats else ""


# -- in order ----------------------------------------------------------------------------------------------------------


def _first(b: ProgramBuilder, x: Var, axis: int, count: int, *, ascending: bool) -> tuple[Var, Var]:
    """The least or largest elements along an axis in order, and their places. MIL orders no booleans."""
    datatype = datatype_of(x)
    if datatype is DataType.BOOL:
        x = b.cast(x, DataType.INT32)
    k, along = numbers([count, axis])
    values, places = b.call("topk", x=x, k=k, axis=along, ascending=ascending)
    return b.cast(values, datatype), places


def _sort(b: ProgramBuilder, call: Call) -> Made:
    x = tensor(b, call)
    if not x.shape:
        return b.call("identity", x=x), b.constant(torch.tensor(0))
    axis = axis_of(call["dim"], len(x.shape))
    return _first(b, x, axis, x.shape[axis], ascending=not call["descending"])


def _largest(b: ProgramBuilder, call: Call) -> Made:
    x = tensor(b, call)
    return _first(b, x, axis_of(call["dim"], len(x.shape)), call["k"], ascending=not call["largest"])


def unused_places(call: Call) -> str | None:
    """With stable=True, the places are not used: MIL does not say in which order equal elements come."""
    used = any(user.operator == "getitem" and user.node.args[1] == 1 for user in call.users)
    return "the places of a stable order are used" if call.get("stable") and used else None


def _kth(b: ProgramBuilder, call: Call) -> Made:
    """The element that k - 1 others of its row are not larger than, and its place."""
    x = tensor(b, call)
    return _without_axis(b, call, _at_rank(b, x, axis_of(call["dim"], len(x.shape)), call["k"]))


def _at_rank(b: ProgramBuilder, x: Var, axis: int, count: int) -> tuple[Var, Var]:
    values, places = _first(b, x, axis, count, ascending=True)
    return sliced(b, values, axis, count - 1, count), sliced(b, places, axis, count - 1, count)


def _without_axis(b: ProgramBuilder, call: Call, found: tuple[Var, Var]) -> Made:
    axes = numbers([axis_of(call["dim"], call["self"].rank)])
    return found if call["keepdim"] else tuple(b.call("squeeze", x=item, axes=axes) for item in found)


def _middle(b: ProgramBuilder, x: Var, axis: int) -> tuple[Var, Var]:
    """The median along an axis, and its place: where there is a NaN, the NaN."""
    value, place = _at_rank(b, x, axis, (x.shape[axis] + 1) // 2)
    if not datatype_of(x).is_float:
        return value, place
    nans = b.cast(binary(b, "not_equal", x, x), DataType.INT32)
    has_nan = b.cast(reduced(b, "reduce_max", nans, (axis,)), DataType.BOOL)
    first = b.call("reduce_argmax", x=nans, axis=numbers([axis])[0], keep_dims=True)
    return where(b, has_nan, math.nan, value), where(b, has_nan, first, place)


def _median_along(b: ProgramBuilder, call: Call) -> Made:
    x = tensor(b, call)
    return _without_axis(b, call, _middle(b, x, axis_of(call["dim"], len(x.shape))))


def _median(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    value, _ = _middle(b, reshaped(b, x, (math.prod(x.shape),)), 0)
    return reshaped(b, value, ())


# -- along an axis -----------------------------------------------------------------------------------------------------


_ALONG: Final = (has_axes("self"), fixed_axes("self"))

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("sort.default sort.stable", _sort, _SORTED, unused_places, fixed_axes("self"), special_values=place_of_nan),
    row("topk.default", _largest, _SORTED, *_ALONG, special_values=place_of_nan),
    row("kthvalue.default", _kth, _SORTED, *_ALONG, keep=True, special_values=place_of_nan),
    row("median.dim", _median_along, _SORTED, *_ALONG, keep=True),
    row("median.default", _median, _SORTED, keep=True, static_only=True),
    row("cumprod.default", composed(along.cumprod, arguments="dim"), REAL, *_ALONG, keep=True),
    row("cummax.default", composed(along.cummax, arguments="dim"), ANY, *_ALONG, keep=True),
    row("cummin.default", composed(along.cummin, arguments="dim"), ANY, *_ALONG, keep=True),
)
