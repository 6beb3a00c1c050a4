"""Reductions along axes, softmax, running sums, and the positions of the largest and the least."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of, reduced_axes
from delegatekit_toolkit.composed import along
from delegatekit_toolkit.composed.along import enough_elements, known_order
from delegatekit_toolkit.constraints import has_axes, nonempty, types_of
from delegatekit_toolkit.narrowing import narrow_sum
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, numbers
from ..ir.types import DataType
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    composed,
    reduced,
    reshaped,
    sub,
    tensor,
    unary,
)
from .program import Lower, Made, ProgramBuilder


def _keeps(call: Call) -> bool:
    return bool(call.get("keepdim", False))


def _reduction(kind: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Var:
        x = b.cast(tensor(b, call), b.result_type(call))
        return reduced(b, kind, x, reduced_axes(call), keep=_keeps(call))

    return lower


def _product(b: ProgramBuilder, call: Call) -> Var:
    return _reduction("reduce_prod")(b, call)


def _any(b: ProgramBuilder, call: Call) -> Var:
    """True if any elements are not 0: the maximum of ones and zeros."""
    x = b.cast(b.cast(tensor(b, call), DataType.BOOL), DataType.INT32)
    if x.shape:
        x = reduced(b, "reduce_max", x, reduced_axes(call), keep=_keeps(call))
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


_VARIANCE: Final = "dim correction keepdim"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("mean.dim", _reduction("reduce_mean"), REAL),
    row("sum.dim_IntList", _reduction("reduce_sum"), ANY, narrow_sum),
    row("prod.default prod.dim_int", _product, REAL),
    row("amax.default max.default", _reduction("reduce_max"), NUMBERS),
    row("amin.default min.default", _reduction("reduce_min"), NUMBERS),
    row("argmax.default", _position("reduce_argmax"), types_of("self", *FLOATS)),
    row("argmin.default", _position("reduce_argmin"), types_of("self", *FLOATS)),
    row("any.default any.dim any.dims", _any, ANY, nonempty("dim")),
    row("var.correction", composed(along.var, arguments=_VARIANCE), REAL, enough_elements),
    row("var_mean.correction", composed(along.var_mean, arguments=_VARIANCE), REAL, enough_elements, has_axes("self")),
    row("max.dim", _extreme("max"), types_of("self", *FLOATS, *INTEGERS, "bool")),
    row("min.dim", _extreme("min"), types_of("self", *FLOATS, *INTEGERS, "bool")),
    row("std.correction", composed(along.std, arguments=_VARIANCE), REAL, enough_elements, keep=True),
    row(
        "linalg_vector_norm.default",
        composed(along.norm, arguments="ord dim keepdim"),
        types_of("self", *FLOATS),
        known_order(1, 2, math.inf),
        keep=True,
    ),
    row(
        "norm.ScalarOpt_dim",
        composed(along.norm, arguments="p dim keepdim"),
        types_of("self", *FLOATS),
        known_order(1, 2, math.inf),
        keep=True,
    ),
    row("_softmax.default", _softmax, REAL, has_axes("self")),
    row("_log_softmax.default", _log_softmax, REAL, has_axes("self")),
    row("cumsum.default", _cumulative, ANY, has_axes("self"), narrow_sum),
)
