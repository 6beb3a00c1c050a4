"""Reductions along axes."""

from __future__ import annotations

import math
from typing import Final, cast

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.along import enough_elements, known_order
from delegatekit_toolkit.constraints import has_axes, nonempty
from delegatekit_toolkit.narrowing import may_be_large, narrow_product, narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.values import Value
from .common import (
    ANY,
    NUMBERS,
    REAL,
    as_numbers,
    compared,
    operand,
    unary,
)
from .dialect import composed_along, truth
from .program import Lower, ProgramBuilder
from .reductions import halved, reduced


def _reduction(kind: str, pairwise: str = "") -> Lower:
    """A reduction; for integers, which some are not there for, an operation on pairs."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = as_numbers(b, operand(b, call))
        axes = axes_of(call.get("dim"), x.rank)
        if not x.rank:
            return x
        keep = bool(call.get("keepdim", False))
        if pairwise and not x.tensor.datatype.is_float and not x.is_fixed:
            return halved(b, pairwise, x, axes, keep)
        return reduced(b, kind, x, axes, keep, b.result_type(call))

    return lower


def _sum(b: ProgramBuilder, call: Call) -> Value:
    """The processor adds integers as floats: exactly only while they count what is true."""
    exact = may_be_large(call["self"]) and not call["self"].dtype.is_floating_point
    return cast("Value", _reduction("ReduceSum", "ElementWiseAdd" if exact else "")(b, call))


def _product(b: ProgramBuilder, call: Call) -> Value:
    x = as_numbers(b, operand(b, call))
    axes = axes_of(call.get("dim"), x.rank)
    return halved(b, "ElementWiseMultiply", x, axes, bool(call.get("keepdim", False))) if x.rank else x


def _any(b: ProgramBuilder, call: Call) -> Value:
    """True if any are not 0: the count of those; of floats, which may have five axes, the largest absolute value."""
    x = b.floats(b.value(call["self"]))
    axes, keep = axes_of(call.get("dim"), x.rank), bool(call.get("keepdim", False))
    floats = x.tensor.datatype.is_float
    x = unary(b, "ElementWiseAbs", x) if floats else as_numbers(b, truth(b, x))
    if x.rank:
        x = reduced(b, "ReduceMax" if floats else "ReduceSum", x, axes, keep, (x.tensor.datatype, None))
    return compared(b, "Greater", as_numbers(b, x), 0)


def four_axes(call: Call) -> str | None:
    """Both have at most 4 axes: their differences have one more."""
    rank = max(call["x1"].rank, call["x2"].rank)
    return None if rank <= 4 else f"an operand has {rank} axes: 4 are taken"


_AXES: Final = has_axes("self")
_ORDERS: Final = known_order(1, 2, math.inf, -math.inf)
_VARIANCE: Final = "dim correction keepdim"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction("ReduceMean"), REAL, fixed=True),
    row(
        "sum.dim_IntList",
        _reduction("ReduceSum", "ElementWiseAdd"),
        ANY,
        fixed=True,
        special_values=narrowed,
    ),
    row("amax.default max.default", _reduction("ReduceMax", "ElementWiseMaximum"), NUMBERS, fixed=True),
    row("amin.default min.default", _reduction("ReduceMin", "ElementWiseMinimum"), NUMBERS, fixed=True),
    row("prod.default prod.dim_int", _product, NUMBERS, narrow_product, special_values=narrowed),
    row("any.default any.dim any.dims", _any, ANY, nonempty("dim")),
    row("var.correction", composed_along(along.var, arguments=_VARIANCE), REAL, _AXES, enough_elements),
    row(
        "std.correction",
        composed_along(along.std, arguments=_VARIANCE),
        REAL,
        _AXES,
        enough_elements,
        keep=True,
    ),
    row(
        "var_mean.correction",
        composed_along(along.var_mean, arguments=_VARIANCE),
        REAL,
        _AXES,
        enough_elements,
    ),
    row(
        "linalg_vector_norm.default",
        composed_along(along.norm, arguments="ord dim keepdim"),
        REAL,
        _AXES,
        _ORDERS,
    ),
    row("_cdist_forward.default", composed_along(along.cdist, "x1 x2", "p"), REAL, four_axes, _ORDERS),
)
