"""Elementwise functions of one tensor, powers, and activations."""

from __future__ import annotations

import operator
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, angles, arithmetic, functions, number
from delegatekit_toolkit.composed.activations import rising_softplus
from delegatekit_toolkit.composed.functions import powers_of_integers
from delegatekit_toolkit.composed.rows import FUNCTIONS
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Value, VgfBuilder
from .common import ANY, EXTREMES, NUMBERS, REAL, REALS, composed, mul, tensor


def _leaky_relu(b: VgfBuilder, call: Call) -> Value:
    x = tensor(b, call)
    return b.choice(b.less(x, b.term(0, x)), mul(b, x, call["negative_slope"]), x)


def _prelu(b: VgfBuilder, call: Call) -> Value:
    x, weight = tensor(b, call), tensor(b, call, "weight")
    shape = [1] * len(x.order)
    if len(shape) > 1:
        shape[1] = weight.tensor.size
    slopes = b.shaped(weight, shape)
    return b.choice(b.less(x, b.term(0, x)), mul(b, x, slopes), x)


_TWO: Final = "self other"
_FLOATING: Final = types_of("self", *REALS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(row(f"{make.__name__}.default", composed(make), ANY, special_values=EXTREMES) for make in FUNCTIONS),
    row("abs.default", composed(abs), NUMBERS),
    row("neg.default", composed(operator.neg), NUMBERS),
    row("sign.default", composed(number.sign), NUMBERS),
    row("relu.default", composed(activations.relu), NUMBERS),
    row("ceil.default", composed(number.ceil), REAL),
    row("floor.default", composed(number.floor), REAL),
    row("round.default", composed(number.round_), REAL),
    row("trunc.default", composed(number.trunc), REAL),
    row("erfc.default", composed(functions.erfc), REAL, special_values=EXTREMES),
    row(
        "pow.Tensor_Scalar",
        composed(functions.power, "self exponent"),
        NUMBERS,
        powers_of_integers,
        narrow_product,
        numbers_fit,
        special_values=EXTREMES,
    ),
    row("pow.Tensor_Tensor pow.Scalar", composed(functions.pow_, "self exponent"), REAL, special_values=EXTREMES),
    row("hypot.default", composed(functions.hypot, _TWO), REAL, keep=True, special_values=EXTREMES),
    row("isnan.default", composed(number.isnan), _FLOATING),
    row("isinf.default", composed(number.isinf), _FLOATING),
    row("fmax.default", composed(arithmetic.fmax, _TWO), REAL),
    row("fmin.default", composed(arithmetic.fmin, _TWO), REAL),
    row("atan2.default", composed(angles.atan2, _TWO), REAL, special_values=EXTREMES),
    row("signbit.default", composed(number.signbit), _FLOATING),
    row("copysign.Tensor copysign.Scalar", composed(arithmetic.copysign, _TWO), REAL),
    row("gelu.default", composed(activations.gelu, arguments="approximate"), REAL, keep=True, special_values=EXTREMES),
    row("silu.default", composed(activations.silu), REAL, keep=True, special_values=EXTREMES),
    row("mish.default", composed(activations.mish), REAL, keep=True, special_values=EXTREMES),
    row(
        "softplus.default",
        composed(activations.softplus, arguments="beta threshold"),
        REAL,
        rising_softplus,
        keep=True,
        special_values=EXTREMES,
    ),
    row("leaky_relu.default", _leaky_relu, REAL, numbers_fit, keep=True, special_values=EXTREMES),
    row("prelu.default", _prelu, REAL, keep=True, special_values=EXTREMES),
    row("hardshrink.default", composed(activations.hardshrink, arguments="lambd"), REAL, numbers_fit, keep=True),
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
