"""Reductions along axes, softmax, running sums, and the positions of the largest and the least."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axes_of, axis_of
from delegatekit_toolkit.constraints import has_axes, types_of
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from ..ir.sizes import is_fixed
from ..ir.types import DataType
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    LEAST_DIVISOR,
    NUMBERS,
    REAL,
    clamp,
    div,
    mul,
    narrow_sum,
    reshaped,
    sub,
    tensor,
    unary,
)
from .program import Lower, Made, ProgramBuilder


def _axes(call: Call) -> tuple[int, ...]:
    return axes_of(call.get("dim"), call["self"].rank)


def reduced(b: ProgramBuilder, kind: str, x: Var, axes: tuple[int, ...], *, keep: bool = True) -> Var:
    """A reduction along axes, which stay with size 1 if `keep` says so."""
    return b.call(kind, x=x, axes=numbers(axes), keep_dims=keep) if axes else x


def largest_sizes(b: ProgramBuilder, x: Var, axes: tuple[int, ...]) -> Var:
    """The largest absolute numbers along axes, which stay with size 1: divisors, none of which is 0."""
    return clamp(b, reduced(b, "reduce_max", unary(b, "abs", x), axes), LEAST_DIVISOR, None)


def _keeps(call: Call) -> bool:
    return bool(call.get("keepdim", False))


def _reduction(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Var:
        x = b.cast(tensor(b, call), b.result_type(call))
        return reduced(b, kind, x, _axes(call), keep=_keeps(call))

    return lower


def _product(b: ProgramBuilder, call: Call) -> Var:
    return _reduction("reduce_prod")(b, call)


def _any(b: ProgramBuilder, call: Call) -> Var:
    """Whether any elements are not 0: the largest of ones and zeros."""
    x = b.cast(b.cast(tensor(b, call), DataType.BOOL), DataType.INT32)
    if x.shape:
        x = reduced(b, "reduce_max", x, _axes(call), keep=_keeps(call))
    return b.cast(x, DataType.BOOL)


def _position(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Var:
        x, dim = tensor(b, call), call["dim"]
        if dim is None or not x.shape:
            x = reshaped(b, x, (math.prod(x.shape),))
            return reshaped(b, b.call(kind, x=x, axis=numbers([0])[0]), call.result.shape)
        axis = axis_of(dim, len(x.shape))
        return b.call(kind, x=x, axis=numbers([axis])[0], keep_dims=call["keepdim"])

    return lower


def _extreme(kind: str) -> Lower:
    """The largest or least along an axis, and its place. MIL compares no booleans."""

    def lower(b: ProgramBuilder, call: Call) -> Made:
        x, datatype = tensor(b, call), b.result_type(call)
        if not x.shape:
            return b.call("identity", x=x), b.constant(torch.tensor(0))
        if datatype is DataType.BOOL:
            x = b.cast(x, DataType.INT32)
        axis = axis_of(call["dim"], len(x.shape))
        value = reduced(b, f"reduce_{kind}", x, (axis,), keep=_keeps(call))
        place = b.call(f"reduce_arg{kind}", x=x, axis=numbers([axis])[0], keep_dims=_keeps(call))
        return b.cast(value, datatype), place

    return lower


def _correction(call: Call) -> float:
    correction = call["correction"]
    return 1.0 if correction is None else float(correction)


def _count(call: Call) -> int | None:
    """How many elements are reduced; None where that changes from call to call."""
    sizes = [call["self"].shape[axis] for axis in _axes(call)]
    return math.prod(sizes) if all(map(is_fixed, sizes)) else None


def enough_elements(call: Call) -> str | None:
    """There are more elements than the correction, which is 0 where their number changes."""
    correction, count = _correction(call), _count(call)
    if count is None:
        return f"correction {correction:g} of a number of elements that changes" if correction else None
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def _corrected(call: Call) -> float:
    """What a mean is multiplied by."""
    count, correction = _count(call), _correction(call)
    return count / (count - correction) if correction and count is not None else 1.0


def _variance(b: ProgramBuilder, call: Call) -> Var:
    x, axes = tensor(b, call), _axes(call)
    if not axes:
        return sub(b, x, x)
    centred = sub(b, x, reduced(b, "reduce_mean", x, axes))
    result = reduced(b, "reduce_mean", mul(b, centred, centred), axes, keep=_keeps(call))
    return mul(b, result, _corrected(call)) if _correction(call) else result


def _variance_and_mean(b: ProgramBuilder, call: Call) -> Made:
    return _variance(b, call), reduced(b, "reduce_mean", tensor(b, call), _axes(call), keep=_keeps(call))


def _deviation(b: ProgramBuilder, call: Call) -> Var:
    """The root of the variance. In float16 squares would soon leave the type: numbers are divided by the largest."""
    x, axes = tensor(b, call), _axes(call)
    if not axes:
        return sub(b, x, x)
    centred = sub(b, x, reduced(b, "reduce_mean", x, axes))
    largest = largest_sizes(b, centred, axes)
    centred = div(b, centred, largest)
    square = mul(b, reduced(b, "reduce_mean", mul(b, centred, centred), axes), _corrected(call))
    result = mul(b, unary(b, "sqrt", square), largest)
    return result if _keeps(call) else b.call("squeeze", x=result, axes=numbers(axes))


#: Order of a norm -> what computes it of sizes. Squares do not leave float16 inside of one operation.
_NORMS: Final = {1.0: "reduce_l1_norm", 2.0: "reduce_l2_norm", math.inf: "reduce_max"}


def _order(call: Call) -> float:
    order = call.get("ord", call.get("p"))
    return 2.0 if order is None else float(order)


def known_norm(call: Call) -> str | None:
    """The order of the norm is 1, 2 or infinity."""
    order = _order(call)
    return None if order in _NORMS else f"the norm of order {order:g}"


def _norm(b: ProgramBuilder, call: Call) -> Var:
    size = unary(b, "abs", b.cast(tensor(b, call), b.result_type(call)))
    return reduced(b, _NORMS[_order(call)], size, _axes(call), keep=_keeps(call)) if size.shape else size


def _softmax(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    return b.call("softmax", x=x, axis=numbers([axis_of(call["dim"], len(x.shape))])[0])


def _log_softmax(b: ProgramBuilder, call: Call) -> Var:
    """x less its largest, less the logarithm of the sum of powers of that."""
    x = tensor(b, call)
    axes = (axis_of(call["dim"], len(x.shape)),)
    below = sub(b, x, reduced(b, "reduce_max", x, axes))
    total = reduced(b, "reduce_sum", unary(b, "exp", below), axes)
    logarithm = b.call("log", x=total, epsilon=b.number(0, b.result_type(call)))
    return sub(b, below, logarithm)


def _cumulative(b: ProgramBuilder, call: Call) -> Var:
    x = b.cast(tensor(b, call), b.result_type(call))
    axis = axis_of(call["dim"], len(x.shape))
    return b.call("cumsum", x=x, axis=numbers([axis])[0])


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction("reduce_mean"), REAL),
    row("sum.dim_IntList", _reduction("reduce_sum"), ANY, narrow_sum),
    row("prod.default prod.dim_int", _product, REAL),
    row("amax.default max.default", _reduction("reduce_max"), NUMBERS),
    row("amin.default min.default", _reduction("reduce_min"), NUMBERS),
    row("argmax.default", _position("reduce_argmax"), types_of("self", *FLOATS)),
    row("argmin.default", _position("reduce_argmin"), types_of("self", *FLOATS)),
    row("any.default any.dim any.dims", _any, ANY),
    row("var.correction", _variance, REAL, enough_elements),
    row("var_mean.correction", _variance_and_mean, REAL, enough_elements, has_axes("self")),
    row("max.dim", _extreme("max"), types_of("self", *FLOATS, *INTEGERS, "bool")),
    row("min.dim", _extreme("min"), types_of("self", *FLOATS, *INTEGERS, "bool")),
    row("std.correction", _deviation, REAL, enough_elements, keep=True),
    row("linalg_vector_norm.default norm.ScalarOpt_dim", _norm, types_of("self", *FLOATS), known_norm, keep=True),
    row("_softmax.default", _softmax, REAL, has_axes("self")),
    row("_log_softmax.default", _log_softmax, REAL, has_axes("self")),
    row("cumsum.default", _cumulative, ANY, has_axes("self"), narrow_sum),
)
