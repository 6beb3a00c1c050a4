"""Elementwise functions of one tensor, powers, parts of numbers, and activations."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, arithmetic, functions, number
from delegatekit_toolkit.composed.functions import powers_of_integers
from delegatekit_toolkit.composed.rows import function_rows
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.narrowing import fits_elements
from delegatekit_toolkit.support import Row, row

from ..blob import schema
from ..ir.builder import GraphBuilder, Lower, Value
from .common import ANY, DIALECT, FLOATS, INTEGERS, NUMBERS, REAL, composed, in_float32, tensor, unary


def _gelu(b: GraphBuilder, call: Call) -> Value:
    mode = call["approximate"]
    return in_float32(b, tensor(b, call), lambda x: unary(b, schema.GeluNode, x, approximate=mode))


def _leaky_relu(b: GraphBuilder, call: Call) -> Value:
    return composed(lambda x: number.where(x > 0, x, x * call["negative_slope"]))(b, call)  # type: ignore[no-any-return]


def _elu(b: GraphBuilder, call: Call) -> Value:
    numbers = [call[name] for name in ("alpha", "scale", "input_scale")]
    return in_float32(b, tensor(b, call), lambda x: activations.elu(DIALECT.number(b, x), *numbers).value)


def even_halves(call: Call) -> str | None:
    """The halved axis of self keeps its size."""
    size = call["self"].shape[call["dim"]]
    return None if is_fixed(size) else "the size of the halves changes from call to call"


_TWO: Final = "self other"

ROWS: Final[tuple[Row[Lower], ...]] = (
    *function_rows(composed, ANY, NUMBERS, REAL, floats=FLOATS),
    row("sign.default", composed(number.sign), NUMBERS),
    row("relu.default", composed(activations.relu), NUMBERS),
    row("pow.Tensor_Scalar", composed(functions.power, "self exponent"), NUMBERS, powers_of_integers),
    row("fmax.default", composed(arithmetic.fmax, _TWO), NUMBERS),
    row("fmin.default", composed(arithmetic.fmin, _TWO), NUMBERS),
    row("signbit.default", composed(number.signbit), types_of("self", *FLOATS, *INTEGERS)),
    row("ldexp.Tensor", composed(functions.ldexp, _TWO), REAL),
    row("gelu.default", _gelu, REAL, keep=True),
    row("leaky_relu.default", _leaky_relu, REAL, fits_elements),
    row("hardsigmoid.default", composed(activations.hardsigmoid), REAL, keep=True),
    row("hardswish.default", composed(activations.hardswish), REAL, keep=True),
    row("elu.default", _elu, REAL, fits_elements),
    row("glu.default", composed(along.glu, arguments="dim"), REAL, even_halves, keep=True),
)
