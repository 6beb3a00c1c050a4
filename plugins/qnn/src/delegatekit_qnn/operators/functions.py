"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Scalar
from ..ir.types import DataType
from ..ir.values import Value
from .common import ANY, NUMBERS, REAL, binary, composed, function, operand, unary
from .elementwise import truth
from .program import Lower, ProgramBuilder

#: Operations of ElementWiseNeuron and ElementWiseUnary.
_HARD_SIGMOID: Final = 2
_RECIPROCAL: Final = 10
_LARGEST: Final = 3.4028234663852886e38


def _number(value: float) -> Scalar:
    return Scalar(DataType.FLOAT32, float(value))


def _clamped(low: float | None, high: float | None) -> dict[str, Scalar]:
    return {
        "min_value": _number(-_LARGEST if low is None else low),
        "max_value": _number(_LARGEST if high is None else high),
    }


def _clamp(b: ProgramBuilder, call: Call) -> Value:
    low = call["min_val"] if call.has("min_val") else call["min"]
    high = call["max_val"] if call.has("max_val") else call["max"]
    if low is not None and high is not None:
        low = min(low, high)
    x = operand(b, call)
    datatype, encoding = b.result_type(call)
    if not datatype.is_float and encoding is None:
        for kind, bound in (("ElementWiseMaximum", low), ("ElementWiseMinimum", high)):
            x = x if bound is None else binary(b, kind, x, bound)
        return x
    made = b.emit("ReluMinMax", [x.tensor], x.tensor.shape, datatype, encoding, **_clamped(low, high))
    return Value(made, x.order)


def _elu(b: ProgramBuilder, call: Call) -> Value:
    return function("Elu", alpha=_number(call["alpha"]))(b, call)


def _silu(b: ProgramBuilder, x: Value) -> Value:
    return binary(b, "ElementWiseMultiply", x, unary(b, "Sigmoid", x))


def _leaky(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    slope = b.scalar(call["negative_slope"], x.tensor)
    datatype, encoding = b.result_type(call)
    return Value(b.emit("Prelu", [x.tensor, slope], x.tensor.shape, datatype, encoding), x.order)


def _logarithm(base: float) -> Lower:
    return composed(lambda b, x: binary(b, "ElementWiseMultiply", unary(b, "ElementWiseLog", x), 1 / math.log(base)))


def _power(b: ProgramBuilder, call: Call) -> Value:
    exponent = call["exponent"]
    x = operand(b, call)
    if exponent == 2:
        return binary(b, "ElementWiseMultiply", x, x)
    if exponent == 3:
        return binary(b, "ElementWiseMultiply", x, binary(b, "ElementWiseMultiply", x, x))
    if exponent == 0.5:
        return unary(b, "ElementWiseSquareRoot", x)
    if exponent == -0.5:
        return unary(b, "ElementWiseRsqrt", x)
    return binary(b, "ElementWisePower", x, float(exponent))


def usual_exponent(call: Call) -> str | None:
    """The exponent is 0.5, -0.5, 2, or 3."""
    found = call["exponent"]
    return None if found in (0.5, -0.5, 2, 3) else f"exponent = {found}: 0.5, -0.5, 2 and 3 are taken"


def _gelu(b: ProgramBuilder, call: Call) -> Value:
    return function("Gelu")(b, call)


def exact_form(call: Call) -> str | None:
    """The exact form."""
    return None if call["approximate"] == "none" else f"approximate = {call['approximate']!r}: QNN has the exact form"


def _moved(b: ProgramBuilder, call: Call) -> Value:
    return b.value(call["self"])


def _cast(b: ProgramBuilder, call: Call) -> Value:
    x = b.floats(b.value(call["self"]))
    wanted, _ = b.result_type(call)
    if wanted is DataType.BOOL:
        return truth(b, x)
    return Value(b.cast(x.tensor, wanted), x.order)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("relu.default", function("Relu"), REAL, fixed=True),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, keep=True, fixed=True),
    row("sigmoid.default", function("Sigmoid"), REAL, fixed=True),
    row("tanh.default", function("Tanh"), REAL, fixed=True),
    row("gelu.default", _gelu, REAL, exact_form, keep=True, fixed=True),
    row("silu.default", composed(_silu), REAL, keep=True),
    row("hardswish.default", function("HardSwish"), REAL, keep=True, fixed=True),
    row(
        "hardsigmoid.default",
        function(
            "ElementWiseNeuron",
            operation=Scalar(DataType.UINT32, _HARD_SIGMOID),
            alpha=_number(1 / 6),
            beta=_number(1 / 2),
        ),
        REAL,
        keep=True,
        fixed=True,
    ),
    row("elu.default", _elu, REAL, keep=True, fixed=True),
    row("leaky_relu.default", _leaky, REAL, keep=True, fixed=True),
    row("exp.default", function("ElementWiseExp"), REAL, fixed=True),
    row("log.default", function("ElementWiseLog"), REAL, fixed=True),
    row("log2.default", _logarithm(2), REAL),
    row("log10.default", _logarithm(10), REAL),
    row("sqrt.default", function("ElementWiseSquareRoot"), REAL, fixed=True),
    row("rsqrt.default", function("ElementWiseRsqrt"), REAL, fixed=True),
    row("reciprocal.default", function("ElementWiseUnary", operation=Scalar(DataType.UINT32, _RECIPROCAL)), REAL),
    row("abs.default", function("ElementWiseAbs"), NUMBERS, fixed=True),
    row("neg.default", function("ElementWiseNeg"), NUMBERS, fixed=True),
    row("sign.default", function("ElementWiseSign"), REAL),
    row("floor.default", function("ElementWiseFloor"), REAL),
    row("ceil.default", function("ElementWiseCeil"), REAL),
    row("round.default", function("ElementWiseRound"), REAL),
    row("sin.default", function("ElementWiseSin"), REAL),
    row("cos.default", function("ElementWiseCos"), REAL),
    row("asin.default", function("ElementWiseAsin"), REAL),
    row("atan.default", function("ElementWiseAtan"), REAL),
    row("pow.Tensor_Scalar", _power, REAL, usual_exponent),
    row("clone.default alias_copy.default", _moved, ANY, passenger=True),
    row("_to_copy.default", _cast, ANY),
)
