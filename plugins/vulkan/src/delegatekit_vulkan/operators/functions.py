"""Elementwise functions of one tensor: those that the runtime has, and those that it has not, composed of its own."""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.narrowing import narrow_product, numbers_fit
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir.graph import Tensor
from .common import (
    FLOATS,
    INTEGERS,
    add,
    binary,
    clamp,
    compared,
    div,
    flat_rank,
    floating,
    four_axes,
    function,
    lowered_by,
    mul,
    negative,
    sub,
    types,
    where,
)
from .elementwise import greatest
from .program import Lower, ProgramBuilder

# -- functions that the runtime has ------------------------------------------------------------------------------------


def _function(name: str) -> Lower:
    return lowered_by(lambda b, x: function(b, f"aten.{name}.default", x))


def _absolute(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return function(b, "aten.abs.default", x) if x.datatype.is_float else greatest(b, x, negative(b, x))


def _negative(b: ProgramBuilder, call: Call) -> Tensor:
    return negative(b, b.tensor(call["self"]))


def _relu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return function(b, "aten.relu.default", x) if x.datatype.is_float else clamp(b, x, 0, None)


def _round(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return function(b, "aten.round.default", x) if x.datatype.is_float else x


def _gelu(b: ProgramBuilder, call: Call) -> Tensor:
    return function(b, "aten.gelu.default", b.tensor(call["self"]), call["approximate"])


def infinite_gelu(call: Call) -> str:
    """Where PyTorch's own function is not what its formula says."""
    return "" if call["approximate"] == "tanh" else "gelu(inf) is inf, PyTorch says NaN"


def _clamp(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    low, high = (call[name] for name in (("min", "max") if call.has("min") else ("min_val", "max_val")))
    return clamp(b, x, low, high)


def _with_number(name: str, argument: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return function(b, f"aten.{name}.default", b.tensor(call["self"]), call[argument])

    return lower


# -- powers and logarithms ---------------------------------------------------------------------------------------------


def _logarithm(factor: float) -> Lower:
    """The runtime has the decimal one."""
    return lowered_by(lambda b, x: mul(b, function(b, "aten.log10.default", x), factor))


def _log1p(b: ProgramBuilder, x: Tensor) -> Tensor:
    """ln(1 + x), and what the sum 1 + x lost of x, over it: only between these bounds it loses anything that counts."""
    near = clamp(b, x, -0.5, 16384.0)
    total = add(b, near, 1)
    lost = div(b, sub(b, near, sub(b, total, 1)), total)
    return add(b, mul(b, function(b, "aten.log10.default", add(b, x, 1)), math.log(10)), lost)


def expm1(b: ProgramBuilder, x: Tensor) -> Tensor:
    """e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2), which is exact near 0, where the subtraction is not."""
    half = function(b, "aten.tanh.default", mul(b, x, 0.5))
    near = div(b, add(b, half, half), sub(b, 1, half))
    size = function(b, "aten.abs.default", x)
    return where(b, compared(b, "lt", size, 1), near, sub(b, function(b, "aten.exp.default", x), 1))


def _reciprocal(b: ProgramBuilder, x: Tensor) -> Tensor:
    return div(b, 1, x)


def _power(b: ProgramBuilder, call: Call) -> Tensor:
    """As products and roots where that is possible: the functions of GPUs are not exact, nor for negative numbers."""
    exponent = call["exponent"]
    x = floating(b, call)
    if not x.datatype.is_float:
        return binary(b, "aten.pow.Tensor_Tensor", x, exponent)
    if exponent == 0.5:
        return function(b, "aten.sqrt.default", x)
    if exponent == -0.5:
        return function(b, "aten.rsqrt.default", x)
    if exponent in _PRODUCTS:
        product = _product(b, x, int(abs(exponent)))
        return product if exponent > 0 else _reciprocal(b, product)
    return b.call("aten.pow.Tensor_Scalar", [x, exponent], x.shape)


_PRODUCTS: Final = (1, 2, 3, 4, -1, -2, -3, -4)


def _product(b: ProgramBuilder, x: Tensor, factors: int) -> Tensor:
    if factors == 1:
        return x
    square = mul(b, x, x)
    return square if factors == 2 else mul(b, square, x if factors == 3 else square)


def negative_bases(call: Call) -> str:
    """Where the function of GPUs is not PyTorch's."""
    exponent = call["exponent"]
    if exponent in _PRODUCTS:
        return ""
    return "some GPUs give NaN for powers of negative numbers" if exponent not in (0.5, -0.5) else _ROOTS


_ROOTS: Final = "the root of -inf is NaN, PyTorch's power of it inf"


def _power_of_tensors(b: ProgramBuilder, call: Call) -> Tensor:
    return b.call("aten.pow.Tensor_Tensor", [floating(b, call), floating(b, call, "exponent")], b.shape(call))


def _power_of_number(b: ProgramBuilder, call: Call) -> Tensor:
    return binary(b, "aten.pow.Tensor_Tensor", call["self"], floating(b, call, "exponent"))


def _power_of_two(b: ProgramBuilder, x: Tensor) -> Tensor:
    return binary(b, "aten.pow.Tensor_Tensor", 2.0, x)


def _tangent(b: ProgramBuilder, x: Tensor) -> Tensor:
    return div(b, function(b, "aten.sin.default", x), function(b, "aten.cos.default", x))


# -- activations -------------------------------------------------------------------------------------------------------


def _hardsigmoid(b: ProgramBuilder, call: Call) -> Tensor:
    return div(b, clamp(b, add(b, b.tensor(call["self"]), 3), 0.0, 6.0), 6)


def _silu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return mul(b, x, function(b, "aten.sigmoid.default", x))


def _elu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    alpha, scale, inner = call["alpha"], call["scale"], call["input_scale"]
    below = expm1(b, x if inner == 1 else mul(b, x, inner))
    if alpha * scale != 1:
        below = mul(b, below, alpha * scale)
    return where(b, compared(b, "gt", x, 0), x if scale == 1 else mul(b, x, scale), below)


def halves_known(call: Call) -> str | None:
    """The axis that is halved does not change."""
    shape = shape_of(call["self"])
    size = shape[call["dim"] % len(shape)]
    return f"half of {size} elements is not at a known place" if isinstance(size, Dynamic) else None


def _glu(b: ProgramBuilder, call: Call) -> Tensor:
    x, shape = b.tensor(call["self"]), b.shape(call)
    axis = call["dim"] % x.rank
    half = shape[axis]
    assert isinstance(half, int)
    parts = [b.call("aten.slice_copy.Tensor", [x, axis, at, at + half, 1], shape) for at in (0, half)]
    return mul(b, parts[0], function(b, "aten.sigmoid.default", parts[1]))


# -- the rows ----------------------------------------------------------------------------------------------------------

_REAL: Final = (types(*FLOATS), flat_rank)
#: PyTorch computes these in float32 for integers.
_FROM_ANY: Final = (types(*FLOATS, *INTEGERS, "bool"), flat_rank)
_NUMBERS: Final = (types(*FLOATS, *INTEGERS), numbers_fit, flat_rank)

ROWS: Final[tuple[Row[Lower], ...]] = (
    *(
        row(f"{name}.default", _function(name), *_FROM_ANY, runs=())
        for name in ("cos", "exp", "log10", "rsqrt", "sigmoid", "sin", "sqrt", "tanh")
    ),
    row("abs.default", _absolute, *_NUMBERS, runs=()),
    row("neg.default", _negative, *_NUMBERS, runs=()),
    row("relu.default", _relu, *_NUMBERS, runs=()),
    row("round.default", _round, *_NUMBERS, runs=()),
    row("gelu.default", _gelu, *_REAL, special_values=infinite_gelu, runs=()),
    row("clamp.default hardtanh.default", _clamp, *_NUMBERS, runs=()),
    row("hardswish.default", _function("hardswish"), *_REAL, keep=True, runs=()),
    row("hardshrink.default", _with_number("hardshrink", "lambd"), *_REAL, keep=True, runs=()),
    row("leaky_relu.default", _with_number("leaky_relu", "negative_slope"), *_REAL, numbers_fit, runs=()),
    row("hardsigmoid.default", _hardsigmoid, *_REAL, keep=True),
    row("silu.default", _silu, *_REAL, keep=True),
    row("elu.default", _elu, *_REAL, numbers_fit, four_axes),
    row("glu.default", _glu, *_REAL, halves_known, keep=True),
    row("log.default", _logarithm(math.log(10)), *_FROM_ANY),
    row("log2.default", _logarithm(math.log2(10)), *_FROM_ANY),
    row("log1p.default", lowered_by(_log1p), *_FROM_ANY),
    row("exp2.default", lowered_by(_power_of_two), *_FROM_ANY),
    row("expm1.default", lowered_by(expm1), *_FROM_ANY, four_axes),
    row("reciprocal.default", lowered_by(_reciprocal), *_FROM_ANY),
    row("tan.default", lowered_by(_tangent), *_FROM_ANY),
    row("pow.Tensor_Scalar", _power, *_NUMBERS, narrow_product, special_values=negative_bases),
    row("pow.Tensor_Tensor", _power_of_tensors, types(*FLOATS)),
    row("pow.Scalar", _power_of_number, types(*FLOATS)),
)
