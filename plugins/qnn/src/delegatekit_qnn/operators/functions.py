"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
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
    compared,
    composed,
    div,
    function,
    larger,
    lesser,
    mul,
    operand,
    operation,
    sub,
    truncated,
    unary,
    where,
)
from .composition import expm1, exponential, logarithm, power
from .elementwise import truth
from .program import Lower, ProgramBuilder
from .shape import sliced

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
    alpha, scale, inner = call["alpha"], call["scale"], call["input_scale"]
    if scale == inner == 1:
        return function("Elu", alpha=_number(alpha))(b, call)
    x = b.floats(operand(b, call))
    below = mul(b, expm1(b, mul(b, lesser(b, x, 0), inner)), alpha * scale)
    return as_result(b, call, where(b, compared(b, "Greater", x, 0), mul(b, x, scale), below))


def _by_table(kind: str, floats: Callable[[ProgramBuilder, Value], Value]) -> Lower:
    """A function for whose integers the library has tables, and whose floats are composed."""
    of_integers, of_floats = function(kind), composed(floats)

    def lower(b: ProgramBuilder, call: Call) -> Value | tuple[Value, ...]:
        return of_integers(b, call) if operand(b, call).is_fixed else of_floats(b, call)

    return lower


def _sigmoid(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    if x.rank < 5 or x.is_fixed:
        return function("Sigmoid")(b, call)
    # The library fails at five axes.
    return as_result(b, call, add(b, mul(b, unary(b, "Tanh", mul(b, x, 0.5)), 0.5), 0.5))


def _silu(b: ProgramBuilder, x: Value) -> Value:
    return mul(b, x, unary(b, "Sigmoid", x))


def _leaky(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    slope = b.scalar(call["negative_slope"], x.tensor)
    datatype, encoding = b.result_type(call)
    return Value(apply(b, "Prelu", [x.tensor, slope], datatype, encoding), x.order)


def _hardshrink(b: ProgramBuilder, call: Call) -> Value | tuple[Value, ...]:
    def shrunk(b: ProgramBuilder, x: Value) -> Value:
        small = compared(b, "LessEqual", unary(b, "ElementWiseAbs", x), call["lambd"])
        return where(b, small, 0, x)

    return composed(shrunk)(b, call)


def _glu(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    axis = axis_of(call["dim"], x.rank)
    half = x.shape[axis] // 2
    first, second = sliced(b, x, axis, 0, half), sliced(b, x, axis, half, 2 * half)
    return mul(b, first, unary(b, "Sigmoid", second))


def _negative(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    if x.tensor.datatype is DataType.INT32:
        return sub(b, 0, x)
    return function("ElementWiseNeg")(b, call)


def _sign(b: ProgramBuilder, call: Call) -> Value:
    x = operand(b, call)
    if x.tensor.datatype is DataType.INT32:
        return lesser(b, larger(b, x, -1), 1)
    return unary(b, "ElementWiseSign", x)


def _rounded(kind: str) -> Lower:
    """Integers stay what they are."""

    def lower(b: ProgramBuilder, call: Call) -> Value:
        x = b.activation(call["self"])
        if not x.tensor.datatype.is_float:
            return x
        return truncated(b, x) if kind == "Truncate" else unary(b, kind, x)

    return lower


_PRODUCTS: Final = (1, 2, 3, 4, -1, -2, -3, -4)


def _power(b: ProgramBuilder, call: Call) -> Value:
    """As products and roots where that is possible."""
    exponent = call["exponent"]
    x = operand(b, call)
    if exponent == 0:
        one = Value(b.scalar(1, x.tensor), ())
        return where(b, compared(b, "Equal", x, 0), one, one)  # of NaN and infinity, too
    if exponent == 0.5:
        return unary(b, "ElementWiseSquareRoot", x)
    if exponent == -0.5:
        return unary(b, "ElementWiseRsqrt", x)
    if exponent not in _PRODUCTS:
        return power(b, x, float(exponent))
    product = x
    for _ in range(int(abs(exponent)) - 1):
        product = mul(b, product, x)
    return product if exponent > 0 else div(b, 1, product)


def power_of_numbers(call: Call) -> str | None:
    """Powers of integers have exponents of 1 to 4."""
    exponent = call["exponent"]
    if call.result.dtype_name in INTEGERS and exponent not in (1, 2, 3, 4):
        return f"exponent = {exponent} of integers"
    return None


def _gelu(b: ProgramBuilder, call: Call) -> Value:
    if call["approximate"] == "none":
        return function("Gelu")(b, call)
    x = b.floats(operand(b, call))
    # Beyond these bounds the hyperbolic tangent is 1, and float16 soon has no cube.
    near = lesser(b, larger(b, x, -8.0), 8.0)
    cube = mul(b, mul(b, near, near), near)
    inner = mul(b, add(b, near, mul(b, cube, 0.044715)), math.sqrt(2 / math.pi))
    return as_result(b, call, mul(b, mul(b, x, 0.5), add(b, unary(b, "Tanh", inner), 1)))


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
    """Where conversions are not PyTorch's."""
    kinds = [item.dtype.is_floating_point for item in (call["self"], call.result)]
    if kinds == [False, True]:
        return "integers beyond 65504 are 65504: the processor computes in float16" if call["self"].rank else ""
    return "numbers beyond 65504 are 65504: the processor computes in float16" if kinds == [True, False] else ""


_POWER: Final = dtypes("float32", *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("relu.default", _relu, REAL, fixed=True),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, keep=True, fixed=True),
    row("sigmoid.default", _sigmoid, NUMBERS, fixed=True),
    row("tanh.default", function("Tanh"), NUMBERS, fixed=whole_range),
    row("gelu.default", _gelu, REAL, keep=True, fixed=True),
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
        fixed=unit_range,
    ),
    row("elu.default", _elu, REAL, keep=True, fixed=True),
    row("leaky_relu.default", _leaky, REAL, keep=True, fixed=True),
    row("hardshrink.default", _hardshrink, REAL, keep=True),
    row("glu.default", _glu, REAL, has_axes("self")),
    row("exp.default", _by_table("ElementWiseExp", exponential), NUMBERS, fixed=True),
    row("log.default", _by_table("ElementWiseLog", logarithm), NUMBERS, fixed=eight_bits),
    row("sqrt.default", function("ElementWiseSquareRoot"), NUMBERS, fixed=True),
    row("rsqrt.default", function("ElementWiseRsqrt"), NUMBERS, fixed=True),
    row("reciprocal.default", composed(lambda b, x: div(b, 1, x)), NUMBERS),
    row("abs.default", function("ElementWiseAbs"), NUMBERS, fixed=True),
    row("neg.default", _negative, NUMBERS, fixed=True),
    row("sign.default", _sign, NUMBERS),
    row("floor.default", _rounded("ElementWiseFloor"), NUMBERS),
    row("ceil.default", _rounded("ElementWiseCeil"), NUMBERS),
    row("round.default", _rounded("ElementWiseRound"), NUMBERS),
    row("trunc.default", _rounded("Truncate"), NUMBERS),
    row("pow.Tensor_Scalar", _power, _POWER, power_of_numbers, narrow_product),
    row("_to_copy.default", _cast, ANY, special_values=special_conversions),
)
