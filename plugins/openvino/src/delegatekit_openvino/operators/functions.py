"""Elementwise functions of one tensor, powers, parts of numbers, and activations."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, arithmetic, functions, number
from delegatekit_toolkit.composed.functions import powers_of_integers
from delegatekit_toolkit.composed.rows import function_rows
from delegatekit_toolkit.constraints import dtypes, finite, types_of
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from ..ir.sizes import is_fixed
from .common import ANY, FLOATS, INTEGERS, NUMBERS, REAL, binary, composed, lost_nan, tensor, unary


def _gelu(b: ModelBuilder, call: Call) -> Value:
    return unary(b, "gelu", tensor(b, call), approximation_mode="TANH" if call["approximate"] == "tanh" else "ERF")


def _leaky_relu(b: ModelBuilder, call: Call) -> Value:
    return binary(b, "prelu", tensor(b, call), call["negative_slope"])


def even_halves(call: Call) -> str | None:
    """The halved axis of self keeps its size."""
    size = call["self"].shape[call["dim"]]
    return None if is_fixed(size) else "the size of the halves changes from call to call"


_TWO: Final = "self other"
_FLOATING: Final = types_of("self", *FLOATS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *function_rows(composed, ANY, NUMBERS, REAL, floats=FLOATS, special_values=lost_nan),
    row("sign.default", composed(number.sign), NUMBERS, special_values=lost_nan),
    row("relu.default", composed(activations.relu), NUMBERS, special_values=lost_nan),
    row(
        "pow.Tensor_Scalar",
        composed(functions.power, "self exponent"),
        NUMBERS,
        powers_of_integers,
        narrow_product,
    ),
    row("fmax.default", composed(arithmetic.fmax, _TWO), NUMBERS, special_values=lost_nan),
    row("fmin.default", composed(arithmetic.fmin, _TWO), NUMBERS, special_values=lost_nan),
    row("signbit.default", composed(number.signbit), types_of("self", *FLOATS, *INTEGERS)),
    row("ldexp.Tensor", composed(functions.ldexp, _TWO), REAL),
    row("gelu.default", _gelu, REAL, keep=True, special_values=lost_nan),
    row("leaky_relu.default", _leaky_relu, REAL, numbers_fit, special_values=lost_nan),
    row("hardsigmoid.default", composed(activations.hardsigmoid), dtypes(*FLOATS), keep=True, special_values=lost_nan),
    row("hardswish.default", composed(activations.hardswish), dtypes(*FLOATS), keep=True, special_values=lost_nan),
    row(
        "elu.default",
        composed(activations.elu, arguments="alpha scale input_scale"),
        REAL,
        numbers_fit,
        finite("alpha", "scale", "input_scale"),
        special_values=lost_nan,
    ),
    row("glu.default", composed(along.glu, arguments="dim"), REAL, even_halves, keep=True, special_values=lost_nan),
)
