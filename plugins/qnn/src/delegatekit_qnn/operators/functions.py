"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final, cast

from delegatekit_api import Call
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.composed import Number, activations, along, angles, arithmetic, number
from delegatekit_toolkit.composed.activations import rising_softplus
from delegatekit_toolkit.composed.functions import (
    acosh,
    asinh,
    atanh,
    cosh,
    erf,
    erfc,
    exp2,
    expm1,
    hypot,
    ldexp,
    log1p,
    log2,
    log10,
    pow_,
    power,
    powers_of_integers,
    sinh,
)
from delegatekit_toolkit.constraints import dtypes, has_axes
from delegatekit_toolkit.narrowing import narrow_product
from delegatekit_toolkit.support import Row, row

from ..ir.encodings import activation_type, made_as
from ..ir.graph import Encoding, Scalar
from ..ir.types import LARGEST, DataType
from ..ir.values import Value
from .common import (
    ANY,
    INTEGERS,
    NUMBERS,
    REAL,
    add,
    apply,
    as_numbers,
    as_result,
    binary,
    function,
    mul,
    operand,
    operation,
    truncated,
    unary,
)
from .dialect import composed, composed_along, truth
from .program import Lower, ProgramBuilder

#: An operation of ElementWiseNeuron.
_HARD_SIGMOID: Final = 2
_FLOAT_MAX: Final = 3.4028234663852886e38


def _number(value: float) -> Scalar:
    return Scalar(DataType.FLOAT32, float(value))


def whole_range(call: Call) -> str | None:
    """Integers of a hyperbolic tangent stand for -1 to 1, whatever their encoding says."""
    found = call.result.quantization
    if found is None:
        return "its result is not quantized"
    _, encoding = activation_type(found)
    middle = 1 << (8 * found.dtype.itemsize - 1)
    return None if (encoding.scale, encoding.zero_point) == (1 / middle, middle) else "its integers have another range"


def eight_bits(call: Call) -> str | None:
    """Integers of 8 bits: of 16 the processor's results are wrong."""
    found = made_as(call.result)
    return None if found is not None and found.dtype.itemsize == 1 else "its integers have 16 bits"


def unit_range(call: Call) -> str | None:
    """Integers of 16 bits of a hard sigmoid stand for 0 to 1, whatever their encoding says."""
    found = call.result.quantization
    if found is None or found.dtype.itemsize == 1:
        return None
    _, encoding = activation_type(found)
    fits = encoding.zero_point == 0 and math.isclose(encoding.scale, 1 / 65535, rel_tol=1e-5)
    return None if fits else "its integers have another range"


def _clamped(low: float | None, high: float | None) -> dict[str, Scalar]:
    return {
        "min_value": _number(-_FLOAT_MAX if low is None else _within_half(low)),
        "max_value": _number(_FLOAT_MAX if high is None else _within_half(high)),
    }


def _within_half(bound: float) -> float:
    """A bound that float16 would round away from zero, to what it has not: 65535, the last number of 16 bits."""
    return math.copysign(LARGEST, bound) if LARGEST < abs(bound) < 2 * LARGEST else bound


def _clamp(b: ProgramBuilder, call: Call) -> Value:
    low, high = bounds_of(call)
    if low is not None and high is not None:
        low = min(low, high)
    x = operand(b, call)
    datatype, encoding = b.result_type(call)
    if not datatype.is_float and encoding is None:
        for kind, bound in (("ElementWiseMaximum", low), ("ElementWiseMinimum", high)):
            x = x if bound is None else binary(b, kind, x, bound)
        return x
    if encoding is not None:
        return _clamped_integers(b, x, (low, high), datatype, encoding)
    return Value(apply(b, "ReluMinMax", [x.tensor], datatype, None, **_clamped(low, high)), x.order)


def _clamped_integers(
    b: ProgramBuilder, x: Value, bounds: tuple[float | None, float | None], datatype: DataType, encoding: Encoding
) -> Value:
    """Bounds beyond the result's integers are theirs; others by maximum and minimum: ReluMinMax passes over them."""
    last = (1 << 8 * datatype.numpy.itemsize) - 1
    ends = [(end - encoding.zero_point) * encoding.scale for end in (0, last)]
    low, high = bounds
    if low is not None and low > ends[0] + encoding.scale / 2:
        x = operation(b, "ElementWiseMaximum", [x, _beside(b, low, x)], x.tensor.datatype, x.tensor.encoding)
    if high is not None and high < ends[1] - encoding.scale / 2:
        x = operation(b, "ElementWiseMinimum", [x, _beside(b, high, x)], x.tensor.datatype, x.tensor.encoding)
    return b.quantized(x, datatype, encoding)


def _relu(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    datatype, encoding = b.result_type(call)
    if (
        encoding is not None
        and encoding.zero_point == 0
        and (x.tensor.datatype, x.tensor.encoding) == (datatype, encoding)
    ):
        # These integers stand for no number below zero. The library's Relu of 16 bits behind weights of 4 is wrong
        # where a layer goes over more than three axes.
        return x
    return function("Relu")(b, call)


def _beside(b: ProgramBuilder, number: float, x: Value) -> Value:
    return Value(b.scalar(number, x.tensor), ())


def _elu(b: ProgramBuilder, call: Call) -> Value:
    plain = call["scale"] == call["input_scale"] == 1
    elu = composed(activations.elu, arguments="alpha scale input_scale")
    return cast("Value", (function("Elu", alpha=_number(call["alpha"])) if plain else elu)(b, call))


def _by_table(kind: str, floats: Callable[[Number[Value]], Number[Value]]) -> Lower:
    """A function for whose integers the library has tables, and whose floats are composed."""
    of_integers, of_floats = function(kind), composed(floats)

    def lower(b: ProgramBuilder, call: Call) -> Value | tuple[Value, ...]:
        return of_integers(b, call) if operand(b, call).is_fixed else of_floats(b, call)

    return lower


def _negative(b: ProgramBuilder, call: Call) -> Value:
    fixed = operand(b, call).is_fixed
    return cast("Value", (function("ElementWiseNeg") if fixed else composed(operator.neg))(b, call))


def _sigmoid(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    if x.rank < 5 or x.is_fixed:
        return function("Sigmoid")(b, call)
    # The library fails at five axes.
    return as_result(b, call, add(b, mul(b, unary(b, "Tanh", mul(b, x, 0.5)), 0.5), 0.5))


def _leaky(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    slope = b.scalar(call["negative_slope"], x.tensor)
    datatype, encoding = b.result_type(call)
    return Value(apply(b, "Prelu", [x.tensor, slope], datatype, encoding), x.order)


def _gelu(b: ProgramBuilder, call: Call) -> Value:
    lower = function("Gelu") if call["approximate"] == "none" else composed(activations.gelu, arguments="approximate")
    return cast("Value", lower(b, call))


def _cast(b: ProgramBuilder, call: Call) -> Value:
    x = b.floats(b.value(call["self"]))
    wanted, _ = b.result_type(call)
    if wanted is DataType.BOOL:
        return truth(b, x)
    if x.tensor.datatype.is_float and not wanted.is_float:
        # The processor rounds to the nearest integer.
        x = truncated(b, x)
    if wanted.is_float:
        # The processor makes 1 + 2^-23 of a boolean.
        x = as_numbers(b, x)
    return Value(b.cast(x.tensor, wanted), x.order)


def special_conversions(call: Call) -> str:
    """Numbers whose conversions are not PyTorch's."""
    kinds = [item.dtype.is_floating_point for item in (call["self"], call.result)]
    if kinds == [False, True]:
        return "integers beyond 65504 are 65504: the processor computes in float16" if call["self"].rank else ""
    return "numbers beyond 65504 are 65504: the processor computes in float16" if kinds == [True, False] else ""


_POWER: Final = dtypes("float32", *INTEGERS)
_NEGATIVE: Final = "powers of numbers below 0 depend on the device"
#: There are no NaN.
_ZEROS: Final = "the signs of zeros do not count"

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("relu.default", _relu, REAL, fixed=True),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, keep=True, fixed=True),
    row("sigmoid.default", _sigmoid, NUMBERS, fixed=True),
    row("tanh.default", function("Tanh"), NUMBERS, fixed=whole_range),
    row("gelu.default", _gelu, REAL, keep=True, fixed=True),
    row("silu.default", composed(activations.silu), REAL, keep=True),
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
        fixed=unit_range,
    ),
    row("elu.default", _elu, REAL, keep=True, fixed=True),
    row("leaky_relu.default", _leaky, REAL, keep=True, fixed=True),
    row("hardshrink.default", composed(activations.hardshrink, arguments="lambd"), REAL, keep=True),
    row("glu.default", composed_along(along.glu, arguments="dim"), REAL, has_axes("self")),
    row("exp.default", _by_table("ElementWiseExp", number.exp), NUMBERS, fixed=True),
    row("log.default", _by_table("ElementWiseLog", number.log), NUMBERS, fixed=eight_bits),
    row("sqrt.default", function("ElementWiseSquareRoot"), NUMBERS, fixed=True),
    row("rsqrt.default", function("ElementWiseRsqrt"), NUMBERS, fixed=True),
    row("reciprocal.default", composed(number.reciprocal), NUMBERS),
    row("abs.default", function("ElementWiseAbs"), NUMBERS, fixed=True),
    row("neg.default", _negative, NUMBERS, fixed=True),
    row("sign.default", composed(number.sign), NUMBERS),
    row("floor.default", composed(number.floor), NUMBERS),
    row("ceil.default", composed(number.ceil), NUMBERS),
    row("round.default", composed(number.round_), NUMBERS),
    row("trunc.default", composed(number.trunc), NUMBERS),
    row("pow.Tensor_Scalar", composed(power, "self exponent"), _POWER, powers_of_integers, narrow_product),
    row("pow.Tensor_Tensor pow.Scalar", composed(pow_, "self exponent"), REAL, special_values=_NEGATIVE),
    *(
        row(f"{make.__name__}.default", composed(make), NUMBERS)
        for make in (
            *(exp2, log2, log10, expm1, log1p, sinh, cosh, asinh, acosh, atanh, erf, erfc),
            *(number.sin, number.cos, angles.tan, angles.atan, angles.asin, angles.acos),
        )
    ),
    row("atan2.default", composed(angles.atan2, "self other"), NUMBERS, special_values=_ZEROS),
    row("copysign.Tensor copysign.Scalar", composed(arithmetic.copysign, "self other"), REAL, special_values=_ZEROS),
    row("signbit.default", composed(number.signbit), NUMBERS, special_values=_ZEROS),
    row("ldexp.Tensor", composed(ldexp, "self other"), NUMBERS),
    row("hypot.default", composed(hypot, "self other"), REAL, keep=True),
    row(
        "softplus.default", composed(activations.softplus, arguments="beta threshold"), REAL, rising_softplus, keep=True
    ),
    row("mish.default", composed(activations.mish), REAL, keep=True),
    row("_to_copy.default", _cast, ANY, special_values=special_conversions),
)
