"""Elementwise functions of one tensor, powers, and activations."""

from __future__ import annotations

import operator
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, angles, functions, number
from delegatekit_toolkit.composed.activations import rising_softplus
from delegatekit_toolkit.composed.functions import PRODUCTS, powers_of_integers
from delegatekit_toolkit.constraints import dtypes, types_of
from delegatekit_toolkit.expressions import is_fixed
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from .common import ANY, FLOATS, INTEGERS, NUMBERS, REAL, composed, tensor
from .program import Lower, ProgramBuilder


def _gelu(b: ProgramBuilder, call: Call) -> Var:
    mode = "TANH_APPROXIMATION" if call["approximate"] == "tanh" else "EXACT"
    return b.call("gelu", x=tensor(b, call), mode=mode)


#: MIL adds its epsilon to the operand, and -0 + 0 is 0.
_INVERSE_ROOTS: Final = "the inverse root of -0 is infinity, not -infinity"


def negative_bases(call: Call) -> str:
    """Arguments whose powers are not PyTorch's on all devices."""
    exponent = call.get("exponent")
    if exponent == -0.5:
        return _INVERSE_ROOTS
    if exponent in (*PRODUCTS, 0, 0.5):
        return ""
    return "powers of numbers below 0, and of infinities, depend on the device"


def _leaky_relu(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    return b.call("leaky_relu", x=x, alpha=b.number(call["negative_slope"], datatype_of(x)))


def _elu(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    if call["scale"] == call["input_scale"] == 1:
        return b.call("elu", x=x, alpha=b.number(call["alpha"], datatype_of(x)))
    return composed(activations.elu, arguments="alpha scale input_scale")(b, call)


def even_halves(call: Call) -> str | None:
    """The halved axis of self keeps its size."""
    size = call["self"].shape[call["dim"]]
    return None if is_fixed(size) else "the size of the halves changes from call to call"


_BELOW: Final = dtypes(*FLOATS, *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        row(f"{make.__name__}.default", composed(make), ANY)
        for make in (
            *(number.exp, number.log, number.sqrt, number.reciprocal, number.sin, number.cos),
            *(angles.tan, angles.acos, angles.asin, angles.atan),
            *(functions.exp2, functions.expm1, functions.log1p, functions.log2, functions.log10),
            *(functions.sinh, functions.cosh, functions.tanh, functions.asinh, functions.acosh, functions.atanh),
            *(functions.sigmoid, functions.erf),
        )
    ),
    row("rsqrt.default", composed(number.rsqrt), ANY, special_values=_INVERSE_ROOTS),
    row("abs.default", composed(abs), NUMBERS),
    row("neg.default", composed(operator.neg), NUMBERS),
    row("sign.default", composed(number.sign), NUMBERS),
    row("relu.default", composed(activations.relu), NUMBERS),
    row("ceil.default", composed(number.ceil), NUMBERS),
    row("floor.default", composed(number.floor), NUMBERS),
    row("round.default", composed(number.round_), NUMBERS),
    row("trunc.default", composed(number.trunc), REAL),
    # Of integers it is soon less than float16 has.
    row("erfc.default", composed(functions.erfc), REAL),
    row(
        "pow.Tensor_Scalar",
        composed(functions.power, "self exponent"),
        _BELOW,
        powers_of_integers,
        narrow_product,
        special_values=negative_bases,
    ),
    row(
        "pow.Tensor_Tensor pow.Scalar",
        composed(functions.pow_, "self exponent"),
        REAL,
        special_values=negative_bases,
    ),
    row("hypot.default", composed(functions.hypot, "self other"), REAL, keep=True),
    row("gelu.default", _gelu, REAL, keep=True),
    row("silu.default", composed(activations.silu), REAL, keep=True),
    row("mish.default", composed(activations.mish), REAL, keep=True),
    row(
        "softplus.default",
        composed(activations.softplus, arguments="beta threshold"),
        REAL,
        rising_softplus,
        keep=True,
    ),
    row("leaky_relu.default", _leaky_relu, REAL, numbers_fit),
    row("hardshrink.default", composed(activations.hardshrink, arguments="lambd"), REAL, numbers_fit, keep=True),
    row("hardsigmoid.default", composed(activations.hardsigmoid), REAL, types_of("self", *FLOATS), keep=True),
    row("hardswish.default", composed(activations.hardswish), REAL, types_of("self", *FLOATS), keep=True),
    row("elu.default", _elu, REAL, numbers_fit),
    row("glu.default", composed(along.glu, arguments="dim"), REAL, even_halves, keep=True),
)
