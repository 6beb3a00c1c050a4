"""Elementwise functions of one tensor, powers, and activations."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, arithmetic, functions, number
from delegatekit_toolkit.composed.functions import powers_of_integers
from delegatekit_toolkit.composed.rows import function_rows
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Term, Value, VgfBuilder
from .common import ANY, EXTREMES, NUMBERS, REAL, REALS, composed, mul, tensor


def _leaky_relu(b: VgfBuilder, call: Call) -> Value:
    return _sloped(b, tensor(b, call), call["negative_slope"])


def _prelu(b: VgfBuilder, call: Call) -> Value:
    x, weight = tensor(b, call), tensor(b, call, "weight")
    shape = [1] * len(x.order)
    if len(shape) > 1:
        shape[1] = weight.tensor.size
    slopes = b.shaped(weight, shape)
    return _sloped(b, x, slopes)


def _sloped(b: VgfBuilder, x: Value, slopes: Term) -> Value:
    """x above 0, else x times a slope."""
    return b.choice(b.less(b.term(0, x), x), x, mul(b, x, slopes))


_TWO: Final = "self other"
_FLOATING: Final = types_of("self", *REALS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *function_rows(composed, ANY, NUMBERS, REAL, floats=REALS, special_values=EXTREMES),
    row("sign.default", composed(number.sign), NUMBERS),
    row("relu.default", composed(activations.relu), NUMBERS),
    row(
        "pow.Tensor_Scalar",
        composed(functions.power, "self exponent"),
        NUMBERS,
        powers_of_integers,
        narrow_product,
        numbers_fit,
        special_values=EXTREMES,
    ),
    row("fmax.default", composed(arithmetic.fmax, _TWO), REAL),
    row("fmin.default", composed(arithmetic.fmin, _TWO), REAL),
    row("signbit.default", composed(number.signbit), _FLOATING),
    row("gelu.default", composed(activations.gelu, arguments="approximate"), REAL, keep=True, special_values=EXTREMES),
    row("leaky_relu.default", _leaky_relu, REAL, numbers_fit, keep=True, special_values=EXTREMES),
    row("prelu.default", _prelu, REAL, keep=True, special_values=EXTREMES),
    row("hardsigmoid.default", composed(activations.hardsigmoid), REAL, keep=True, special_values=EXTREMES),
    row("hardswish.default", composed(activations.hardswish), REAL, keep=True, special_values=EXTREMES),
    row(
        "elu.default",
        composed(activations.elu, arguments="alpha scale input_scale"),
        REAL,
        numbers_fit,
        keep=True,
        special_values=EXTREMES,
    ),
    row("glu.default", composed(along.glu, arguments="dim"), REAL, keep=True, special_values=EXTREMES),
)
