"""Elementwise functions of one tensor, powers, and activations."""

from __future__ import annotations

import operator
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.composed import activations, along, angles, functions, number
from delegatekit_toolkit.composed.activations import rising_softplus
from delegatekit_toolkit.composed.functions import PRODUCTS
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from .common import FLOATS, INTEGERS, composed, composed_along, flat_rank, four_axes, function, types
from .program import Lower, ProgramBuilder

# -- functions that the runtime has ------------------------------------------------------------------------------------


def _gelu(b: ProgramBuilder, call: Call) -> Tensor:
    return function(b, "aten.gelu.default", b.tensor(call["self"]), call["approximate"])


def infinite_gelu(call: Call) -> str:
    """Arguments for which PyTorch's own function is not what its formula says."""
    return "" if call["approximate"] == "tanh" else "gelu(inf) is inf, PyTorch says NaN"


def _leaky_relu(b: ProgramBuilder, call: Call) -> Tensor:
    return function(b, "aten.leaky_relu.default", b.tensor(call["self"]), call["negative_slope"])


# -- powers ------------------------------------------------------------------------------------------------------------


def negative_bases(call: Call) -> str:
    """Bases for which the function of GPUs is not PyTorch's."""
    exponent = call["exponent"]
    if exponent in PRODUCTS:
        return ""
    return "some GPUs give NaN for powers of negative numbers" if exponent not in (0.5, -0.5) else _ROOTS


_ROOTS: Final = "the root of -inf is NaN, PyTorch's power of it inf"


# -- halves ------------------------------------------------------------------------------------------------------------


def halves_known(call: Call) -> str | None:
    """The axis that is halved does not change."""
    shape = shape_of(call["self"])
    size = shape[call["dim"] % len(shape)]
    return f"half of {size} elements is not at a known place" if isinstance(size, Dynamic) else None


# -- the rows ----------------------------------------------------------------------------------------------------------

_REAL: Final = (types(*FLOATS), flat_rank)
#: PyTorch computes these in float32 for integers.
_FROM_ANY: Final = (types(*FLOATS, *INTEGERS, "bool"), flat_rank)
_NUMBERS: Final = (types(*FLOATS, *INTEGERS), numbers_fit, flat_rank)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        row(f"{make.__name__}.default", composed(make), *_FROM_ANY, runs=())
        for make in (
            *(number.cos, number.exp, number.rsqrt, number.sin, number.sqrt, number.log, number.reciprocal),
            *(functions.log10, functions.sigmoid, functions.tanh, functions.log2, functions.log1p, functions.exp2),
            *(functions.expm1, functions.sinh, functions.cosh, functions.asinh, functions.acosh, functions.atanh),
            *(functions.erf, functions.erfc, angles.tan, angles.asin, angles.acos, angles.atan),
        )
    ),
    row("abs.default", composed(abs), *_NUMBERS, runs=()),
    row("neg.default", composed(operator.neg), *_NUMBERS, runs=()),
    row("relu.default", composed(activations.relu), *_NUMBERS, runs=()),
    row("round.default", composed(number.round_), *_NUMBERS, runs=()),
    row("floor.default", composed(number.floor), *_NUMBERS),
    row("ceil.default", composed(number.ceil), *_NUMBERS),
    row("trunc.default", composed(number.trunc), *_NUMBERS),
    row("sign.default", composed(number.sign), *_NUMBERS),
    row("gelu.default", _gelu, *_REAL, special_values=infinite_gelu, runs=()),
    row("clamp.default", composed(number.clamp, arguments="min max"), *_NUMBERS, runs=()),
    row("hardtanh.default", composed(number.clamp, arguments="min_val max_val"), *_NUMBERS, runs=()),
    row("hardswish.default", composed(activations.hardswish), *_REAL, keep=True, runs=()),
    row("hardshrink.default", composed(activations.hardshrink, arguments="lambd"), *_REAL, keep=True, runs=()),
    row("leaky_relu.default", _leaky_relu, *_REAL, numbers_fit, runs=()),
    row("hardsigmoid.default", composed(activations.hardsigmoid), *_REAL, keep=True),
    row("silu.default", composed(activations.silu), *_REAL, keep=True),
    row("mish.default", composed(activations.mish), *_REAL, keep=True),
    row(
        "softplus.default",
        composed(activations.softplus, arguments="beta threshold"),
        *_REAL,
        numbers_fit,
        rising_softplus,
        keep=True,
    ),
    row("elu.default", composed(activations.elu, arguments="alpha scale input_scale"), *_REAL, numbers_fit),
    row("glu.default", composed_along(along.glu, arguments="dim"), *_REAL, halves_known, keep=True),
    row(
        "pow.Tensor_Scalar",
        composed(functions.power, "self exponent"),
        *_NUMBERS,
        narrow_product,
        special_values=negative_bases,
    ),
    row("pow.Tensor_Tensor pow.Scalar", composed(functions.pow_, "self exponent"), types(*FLOATS)),
    row("hypot.default", composed(functions.hypot, "self other"), types(*FLOATS), four_axes, keep=True),
    row("atan2.default", composed(angles.atan2, "self other"), types(*FLOATS, *INTEGERS), four_axes),
    row("ldexp.Tensor", composed(functions.ldexp, "self other"), types(*FLOATS, *INTEGERS)),
)
