"""Reductions along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of
from delegatekit_toolkit.constraints import has_axes
from delegatekit_toolkit.layout import identity
from delegatekit_toolkit.narrowing import may_be_large, narrow_product, narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Encoding, Scalar, uint32
from ..ir.types import DataType
from ..ir.values import Value
from .common import (
    ANY,
    NUMBERS,
    REAL,
    as_numbers,
    binary,
    compared,
    div,
    larger,
    mul,
    operand,
    sub,
    unary,
)
from .dialect import truth
from .program import Lower, ProgramBuilder
from .shape import concatenated, dropped, sliced


def flag(value: object) -> Scalar:
    """A boolean as a parameter."""
    return Scalar(DataType.BOOL, bool(value))


def reduced(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    axes: tuple[int, ...],
    keep: bool,
    result: tuple[DataType, Encoding | None],
) -> Value:
    """A value reduced along some of the program's axes."""
    if x.tensor.rank > 4 and (kind in ("ReduceMax", "ReduceMin") or result[1] is None):
        return _reduced_one_by_one(b, kind, x, axes, keep, result)
    stored = sorted(x.stored_axis(axis) for axis in axes)
    shape = [1 if place in stored else size for place, size in enumerate(x.tensor.shape)]
    made = b.emit(kind, [x.tensor], shape, *result, axes=uint32(*stored), keep_dims=flag(True))
    if keep:
        return Value(made, x.order)
    order = tuple(axis for axis in x.order if axis not in axes)
    kept = [size for place, size in enumerate(shape) if place not in stored]
    ranks = tuple(sorted(order).index(axis) for axis in order)
    return Value(b.reshaped(made, kept), ranks)


def _reduced_one_by_one(
    b: ProgramBuilder,
    kind: str,
    x: Value,
    axes: tuple[int, ...],
    keep: bool,
    result: tuple[DataType, Encoding | None],
) -> Value:
    """Each axis by itself, as the second of three: of five the library fails at some, or at what follows."""
    for axis in axes:
        shape, place = x.tensor.shape, x.stored_axis(axis)
        parts = around(shape, place)
        made = b.emit(
            kind,
            [b.reshaped(x.tensor, parts)],
            [parts[0], 1, parts[2]],
            *result,
            axes=uint32(1),
            keep_dims=flag(True),
        )
        kept = [1 if at == place else size for at, size in enumerate(shape)]
        x = Value(b.reshaped(made, kept), x.order)
    for axis in () if keep else sorted(axes, reverse=True):
        x = dropped(b, x, axis)
    return x


def around(shape: Sequence[int], axis: int) -> list[int]:
    """A shape with an axis, and all before it and all after it as one each."""
    return [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]


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


def halved(b: ProgramBuilder, kind: str, x: Value, axes: tuple[int, ...], keep: bool) -> Value:
    """A value reduced by an operation on the halves of each axis, until one element is left."""
    for axis in axes:
        while (size := x.shape[axis]) > 1:
            half = size // 2
            first, second = sliced(b, x, axis, 0, half), sliced(b, x, axis, half, 2 * half)
            joined = binary(b, kind, first, second)
            x = concatenated(b, [joined, sliced(b, x, axis, size - 1, size)], axis) if size % 2 else joined
    for axis in () if keep else sorted(axes, reverse=True):
        x = dropped(b, x, axis)
    return x


def _product(b: ProgramBuilder, call: Call) -> Value:
    x = as_numbers(b, operand(b, call))
    axes = axes_of(call.get("dim"), x.rank)
    return halved(b, "ElementWiseMultiply", x, axes, bool(call.get("keepdim", False))) if x.rank else x


def _any(b: ProgramBuilder, call: Call) -> Value:
    """Whether any are not 0: how many are not; of floats, of which there may be five axes, the largest size."""
    x = b.floats(b.value(call["self"]))
    axes, keep = axes_of(call.get("dim"), x.rank), bool(call.get("keepdim", False))
    floats = x.tensor.datatype.is_float
    x = unary(b, "ElementWiseAbs", x) if floats else as_numbers(b, truth(b, x))
    if x.rank:
        x = reduced(b, "ReduceMax" if floats else "ReduceSum", x, axes, keep, (x.tensor.datatype, None))
    return compared(b, "Greater", as_numbers(b, x), 0)


def _variance(b: ProgramBuilder, call: Call) -> Value:
    part, most = _spread(b, call)
    return _without(b, call, mul(b, mul(b, part, most), most))


def _deviation(b: ProgramBuilder, call: Call) -> Value:
    """The root of a variance would be one of a number that float16 may not have."""
    part, most = _spread(b, call)
    return _without(b, call, mul(b, unary(b, "ElementWiseSquareRoot", part), most))


def _spread(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    """The variance of differences from the mean that are divided by the largest, and that largest.

    Those are squared, and not the differences themselves: float16 soon has no squares.
    """
    x = operand(b, call)
    axes, plain = axes_of(call.get("dim"), x.rank), (DataType.FLOAT32, None)
    rest = sub(b, x, reduced(b, "ReduceMean", x, axes, True, plain))
    size = unary(b, "ElementWiseAbs", rest)
    most = larger(b, reduced(b, "ReduceMax", size, axes, True, plain), _LEAST_DIVISOR)
    part = div(b, rest, most)
    found = reduced(b, "ReduceMean", mul(b, part, part), axes, True, plain)
    count = math.prod(x.shape[axis] for axis in axes)
    correction = call.get("correction", 1)
    correction = 1 if correction is None else correction
    return (mul(b, found, count / (count - correction)) if correction else found), most


def _without(b: ProgramBuilder, call: Call, found: Value) -> Value:
    """The value without the axes along which it was reduced, unless the call keeps them."""
    axes = () if call.get("keepdim", False) else axes_of(call.get("dim"), found.rank)
    for axis in sorted(axes, reverse=True):
        found = dropped(b, found, axis)
    return found


def _variance_and_mean(b: ProgramBuilder, call: Call) -> tuple[Value, Value]:
    return _variance(b, call), cast("Value", _reduction("ReduceMean")(b, call))


def _norm(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    return _length(b, x, float(call["ord"]), axes_of(call["dim"], x.rank), bool(call["keepdim"]))


def _distances(b: ProgramBuilder, call: Call) -> Value:
    """Between each of the one and each of the other."""
    first, second = b.activation(call["x1"]), b.activation(call["x2"])
    rank = max(first.rank, second.rank)
    parts = []
    for x, at in ((first, -1), (second, -2)):
        shape = (1,) * (rank - x.rank) + x.shape
        shape = (*shape[:-1], 1, shape[-1]) if at == -1 else (*shape[:-2], 1, *shape[-2:])
        parts.append(Value(b.reshaped(b.dense(x), shape), identity(rank + 1)))
    return _length(b, sub(b, *parts), float(call["p"]), (rank,), False)


def _length(b: ProgramBuilder, x: Value, kind: float, axes: tuple[int, ...], keep: bool) -> Value:
    """Numbers are divided by the largest before they are squared: float16 soon has no squares."""
    plain = (DataType.FLOAT32, None)
    size = unary(b, "ElementWiseAbs", x)
    if kind == 1:
        return reduced(b, "ReduceSum", size, axes, keep, plain)
    if kind in (math.inf, -math.inf):
        return reduced(b, "ReduceMax" if kind > 0 else "ReduceMin", size, axes, keep, plain)
    most = larger(b, reduced(b, "ReduceMax", size, axes, True, plain), _LEAST_DIVISOR)
    part = div(b, size, most)
    total = reduced(b, "ReduceSum", mul(b, part, part), axes, True, plain)
    found = mul(b, unary(b, "ElementWiseSquareRoot", total), most)
    for axis in () if keep else sorted(axes, reverse=True):
        found = dropped(b, found, axis)
    return found


def known_order(call: Call) -> str | None:
    """The order is 1, 2 or infinite."""
    name = "ord" if call.has("ord") else "p"
    found = float(call[name])
    return None if found in (1, 2, math.inf, -math.inf) else f"{name} = {found}: 1, 2 and infinity are taken"


def four_axes(call: Call) -> str | None:
    """Both have at most 4 axes: their differences have one more."""
    rank = max(call["x1"].rank, call["x2"].rank)
    return None if rank <= 4 else f"an operand has {rank} axes: 4 are taken"


def enough_elements(call: Call) -> str | None:
    """More elements than the correction."""
    shape = call["self"].shape
    count = math.prod(shape[axis] for axis in axes_of(call.get("dim"), len(shape)))
    correction = call.get("correction", 1)
    correction = 1 if correction is None else correction
    return None if count > correction else f"{count} elements and a correction of {correction}"


#: Less than this is 0 beside it.
_LEAST_DIVISOR: Final = 2.0**-13
_AXES: Final = has_axes("self")

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
    row("any.default any.dim any.dims", _any, ANY),
    row("var.correction", _variance, REAL, _AXES, enough_elements),
    row("std.correction", _deviation, REAL, _AXES, enough_elements, keep=True),
    row("var_mean.correction", _variance_and_mean, REAL, _AXES, enough_elements),
    row("linalg_vector_norm.default", _norm, REAL, _AXES, known_order),
    row("_cdist_forward.default", _distances, REAL, four_axes, known_order),
)
