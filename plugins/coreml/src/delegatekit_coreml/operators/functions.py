"""Elementwise functions of one tensor: those that MIL has, and those that it has not, composed of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import axis_of
from delegatekit_toolkit.constraints import dtypes, types_of
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.sizes import is_fixed
from .common import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    add,
    binary,
    clamp,
    div,
    floating,
    lowered_by,
    mul,
    sliced,
    sub,
    tensor,
    unary,
    where,
)
from .program import Lower, ProgramBuilder

# -- functions that MIL has --------------------------------------------------------------------------------------------


def _function(kind: str) -> Lower:
    return lowered_by(lambda b, x: unary(b, kind, x))


def _without_epsilon(kind: str) -> Callable[[ProgramBuilder, Var], Var]:
    """MIL adds a small number to the operand of these, unless it is told not to."""

    def make(b: ProgramBuilder, x: Var) -> Var:
        return b.call(kind, x=x, epsilon=b.number(0, datatype_of(x)))

    return make


_log: Final = _without_epsilon("log")


def _absolute(b: ProgramBuilder, call: Call) -> Var:
    return unary(b, "abs", tensor(b, call))


def _negative(b: ProgramBuilder, call: Call) -> Var:
    return mul(b, tensor(b, call), -1)


def _relu(b: ProgramBuilder, call: Call) -> Var:
    return clamp(b, tensor(b, call), 0, None)


def _sign(b: ProgramBuilder, call: Call) -> Var:
    return unary(b, "sign", tensor(b, call))


def _rounded(kind: str) -> Lower:
    """Integers stay what they are."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        x = tensor(b, call)
        return unary(b, kind, x) if datatype_of(x).is_float else b.call("identity", x=x)

    return lower


def _gelu(b: ProgramBuilder, call: Call) -> Var:
    mode = "TANH_APPROXIMATION" if call["approximate"] == "tanh" else "EXACT"
    return b.call("gelu", x=tensor(b, call), mode=mode)


# -- powers and logarithms ---------------------------------------------------------------------------------------------


def _logarithm(base: float) -> Lower:
    return lowered_by(lambda b, x: mul(b, _log(b, x), 1 / math.log(base)))


def _log1p(b: ProgramBuilder, x: Var) -> Var:
    """ln(1 + x), and what the sum 1 + x lost of x, over it: only between these bounds it loses anything that counts."""
    near = clamp(b, x, -0.5, 1024.0)
    total = add(b, near, 1)
    lost = div(b, sub(b, near, sub(b, total, 1)), total)
    return add(b, _log(b, add(b, x, 1)), lost)


def _expm1(b: ProgramBuilder, x: Var) -> Var:
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which is exact near 0, where the subtraction is not."""
    half = unary(b, "tanh", mul(b, x, 0.5))
    near = div(b, add(b, half, half), sub(b, 1, half))
    is_near = binary(b, "less", unary(b, "abs", x), 1)
    return where(b, is_near, near, sub(b, unary(b, "exp", x), 1))


#: From here on the square root of x^2 + 1 or x^2 - 1 is x, but for what `_far` adds; float16 has the square.
_FAR: Final = 64.0


def _asinh(b: ProgramBuilder, x: Var) -> Var:
    """The sign of x times ln(1 + a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|, which is exact near 0."""
    size = unary(b, "abs", x)
    near = binary(b, "minimum", size, _FAR)
    square = mul(b, near, near)
    below = add(b, unary(b, "sqrt", add(b, square, 1)), 1)
    found = _log1p(b, add(b, near, div(b, square, below)))
    return mul(b, unary(b, "sign", x), where(b, binary(b, "less", size, _FAR), found, _far(b, size, 0.25)))


def _acosh(b: ProgramBuilder, x: Var) -> Var:
    """ln(1 + t + sqrt(t) sqrt(t + 2)) with t = x - 1, which is exact near 1."""
    above = sub(b, binary(b, "minimum", x, _FAR), 1)
    root = mul(b, unary(b, "sqrt", above), unary(b, "sqrt", add(b, above, 2)))
    return where(b, binary(b, "less", x, _FAR), _log1p(b, add(b, above, root)), _far(b, x, -0.25))


def _far(b: ProgramBuilder, x: Var, share: float) -> Var:
    """ln(2 x) and a share of 1 / x^2."""
    inverse = div(b, 1, binary(b, "maximum", x, _FAR))
    logarithm = add(b, _log(b, binary(b, "maximum", x, _FAR)), math.log(2))
    return add(b, logarithm, mul(b, mul(b, inverse, inverse), share))


_PRODUCTS: Final = (1, 2, 3, 4, -1, -2, -3, -4)
#: MIL adds its epsilon to the operand, and -0 + 0 is 0.
_INVERSE_ROOTS: Final = "the inverse root of -0 is infinity, not -infinity"


def _power(b: ProgramBuilder, call: Call) -> Var:
    """As products and roots where that is possible: powers of negative numbers are not the same everywhere."""
    exponent = call["exponent"]
    x = floating(b, call)
    if exponent == 0.5:
        return unary(b, "sqrt", x)
    if exponent == -0.5:
        return _without_epsilon("rsqrt")(b, x)
    if exponent in _PRODUCTS:
        product = _product(b, x, int(abs(exponent)))
        return product if exponent > 0 else div(b, 1, product)
    return binary(b, "pow", x, exponent)


def _product(b: ProgramBuilder, x: Var, factors: int) -> Var:
    if factors == 1:
        return b.call("identity", x=x)
    square = mul(b, x, x)
    return square if factors == 2 else mul(b, square, x if factors == 3 else square)


def power_of_numbers(call: Call) -> str | None:
    """Powers of integers have exponents of 1 to 4."""
    exponent = call["exponent"]
    if call.result.dtype_name in INTEGERS and exponent not in (1, 2, 3, 4):
        return f"exponent = {exponent} of integers"
    return None


def negative_bases(call: Call) -> str:
    """Where powers are not PyTorch's everywhere."""
    exponent = call.get("exponent")
    if exponent == -0.5:
        return _INVERSE_ROOTS
    if exponent in (*_PRODUCTS, 0, 0.5):
        return ""
    return "powers of numbers below 0, and of infinities, depend on the device"


def _power_of_tensors(b: ProgramBuilder, call: Call) -> Var:
    return binary(b, "pow", floating(b, call), floating(b, call, "exponent"))


def _power_of_number(b: ProgramBuilder, call: Call) -> Var:
    return binary(b, "pow", call["self"], floating(b, call, "exponent"))


# -- activations -------------------------------------------------------------------------------------------------------


def _hardsigmoid(b: ProgramBuilder, x: Var) -> Var:
    datatype = datatype_of(x)
    return b.call("sigmoid_hard", x=x, alpha=b.number(1 / 6, datatype), beta=b.number(0.5, datatype))


def _hardswish(b: ProgramBuilder, x: Var) -> Var:
    return mul(b, x, _hardsigmoid(b, x))


def _with_alpha(kind: str, argument: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Var:
        x = tensor(b, call)
        return b.call(kind, x=x, alpha=b.number(call[argument], datatype_of(x)))

    return lower


def _elu(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    alpha, scale, inner = call["alpha"], call["scale"], call["input_scale"]
    if scale == inner == 1:
        return b.call("elu", x=x, alpha=b.number(alpha, datatype_of(x)))
    below = mul(b, _expm1(b, mul(b, x, inner)), alpha * scale)
    return where(b, binary(b, "greater", x, 0), mul(b, x, scale), below)


def smooth_softplus(call: Call) -> str | None:
    """beta is positive, and the threshold 17 or more, from where on the curve is a line in float32."""
    beta, threshold = call["beta"], call["threshold"]
    return None if beta > 0 and threshold >= 17 else f"beta = {beta}, threshold = {threshold}"


def _softplus(b: ProgramBuilder, call: Call) -> Var:
    """For another beta: what a line through zero lacks, and the line, which does not leave float16."""
    x, beta = tensor(b, call), call["beta"]
    if beta == 1:
        return unary(b, "softplus", x)
    lack = unary(b, "softplus", mul(b, unary(b, "abs", x), -beta))
    return add(b, unary(b, "relu", x), div(b, lack, beta))


def even_halves(call: Call) -> str | None:
    """The halved axis of self keeps its size."""
    size = call["self"].shape[call["dim"]]
    return None if is_fixed(size) else "the size of the halves changes from call to call"


def _glu(b: ProgramBuilder, call: Call) -> Var:
    x = tensor(b, call)
    axis = axis_of(call["dim"], len(x.shape))
    half = x.shape[axis] // 2
    first, second = sliced(b, x, axis, 0, half), sliced(b, x, axis, half, 2 * half)
    return mul(b, first, unary(b, "sigmoid", second))


# -- the rows ----------------------------------------------------------------------------------------------------------

_BELOW: Final = dtypes(*FLOATS, *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        row(f"{name}.default", _function(name), ANY)
        for name in (
            *("acos", "asin", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2", "sigmoid"),
            *("sin", "sinh", "sqrt", "tan", "tanh"),
        )
    ),
    row("log.default", lowered_by(_log), ANY),
    row("rsqrt.default", lowered_by(_without_epsilon("rsqrt")), ANY, special_values=_INVERSE_ROOTS),
    row("reciprocal.default", lowered_by(lambda b, x: div(b, 1, x)), ANY),
    row("log2.default", _logarithm(2), ANY),
    row("log10.default", _logarithm(10), ANY),
    row("log1p.default", lowered_by(_log1p), ANY),
    row("expm1.default", lowered_by(_expm1), ANY),
    row("asinh.default", lowered_by(_asinh), ANY),
    row("acosh.default", lowered_by(_acosh), ANY),
    row("abs.default", _absolute, NUMBERS),
    row("neg.default", _negative, NUMBERS),
    row("sign.default", _sign, NUMBERS),
    row("relu.default", _relu, NUMBERS),
    *(row(f"{name}.default", _rounded(name), NUMBERS) for name in ("ceil", "floor", "round")),
    row("pow.Tensor_Scalar", _power, _BELOW, power_of_numbers, narrow_product, special_values=negative_bases),
    row("pow.Tensor_Tensor", _power_of_tensors, REAL, special_values=negative_bases),
    row("pow.Scalar", _power_of_number, REAL, special_values=negative_bases),
    row("gelu.default", _gelu, REAL, keep=True),
    row("silu.default", lambda b, call: unary(b, "silu", tensor(b, call)), REAL, keep=True),
    row("softplus.default", _softplus, REAL, smooth_softplus, keep=True),
    row("leaky_relu.default", _with_alpha("leaky_relu", "negative_slope"), REAL, numbers_fit),
    row("hardsigmoid.default", lowered_by(_hardsigmoid), REAL, types_of("self", *FLOATS), keep=True),
    row("hardswish.default", lowered_by(_hardswish), REAL, types_of("self", *FLOATS), keep=True),
    row("elu.default", _elu, REAL, numbers_fit),
    row("glu.default", _glu, REAL, even_halves, keep=True),
)
