"""The quantization scheme as a table. The support table decides whether a layer is quantized."""

from __future__ import annotations

from typing import Any, Final

from delegatekit_api import Call
from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)

_ACTIVATION: Final = TensorQuantization("int8", observer="histogram")
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
#: The kernel of a linear has one scale for all of its outputs.
_MATRIX: Final = TensorQuantization("int8", -127, 127, symmetric=True, eps=2.0**-20)
_BIAS: Final = TensorQuantization("int32", symmetric=True)
#: The library's softmax has results in these steps.
_PROBABILITY: Final = TensorQuantization("int8", scale=1.0 / 256.0, zero_point=-128)

#: Fused to the layer before: saturation, or two bounds, compute them.
_CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")

_MOVING: Final = ("cat", *MOVING_OPERATORS)

#: Functions of single values: each is one table of 256 results.
_FUNCTIONS: Final = (
    *("sigmoid", "tanh", "hardswish", "hardsigmoid", "gelu", "silu", "mish", "softplus", "log_sigmoid"),
    *("elu", "celu", "leaky_relu", "relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"),
    *("hardshrink", "softshrink", "threshold"),
    *("abs", "neg", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "square", "reciprocal"),
    *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf"),
    *("sign", "floor", "ceil", "round", "trunc"),
    *("aten.pow.Tensor_Scalar", "aten.rsub.Scalar"),
)


def _rule(*operators: str, **more: Any) -> QuantizationRule:
    """A rule whose input and output have scales of their own."""
    return QuantizationRule(operators, input=_ACTIVATION, **{"output": _ACTIVATION, **more})


def _first(call: Call) -> str | None:
    """All of its inputs are the program's."""
    return None if all(operand.producer is None for operand in call.operands) else "its input is computed"


def _rules(matrix: TensorQuantization) -> tuple[QuantizationRule, ...]:
    convolutions = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")
    return (
        _rule(*convolutions, weight=_WEIGHT, bias=_BIAS, fused=_CLAMPS),
        _rule("linear", "addmm", weight=matrix, bias=_BIAS, fused=_CLAMPS),
        _rule("matmul", "bmm", "mm", fused=_CLAMPS),
        _rule("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", fused=_CLAMPS, numbers=True),
        _rule("maximum", "minimum"),
        _rule(*_FUNCTIONS),
        _rule("softmax", output=_PROBABILITY),
        # Averages and maxima are computed in the scale of the input.
        QuantizationRule(("max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d"), shares=True),
        QuantizationRule(("mean", "adaptive_avg_pool1d", "adaptive_avg_pool2d"), shares=True),
        # The program's inputs are quantized before they are moved.
        _rule(*_MOVING, declines=(_first,)),
        QuantizationRule(_MOVING, shares=True),
    )


SCHEMES: Final = (
    QuantizationScheme(
        "int8",
        "int8 activations and weights, a scale for each output channel; linears are convolutions of one pixel",
        rules=_rules(_WEIGHT),
        qat=True,
        takes_apart=("scaled_dot_product_attention",),
    ),
    QuantizationScheme(
        "int8-linear",
        "the same with one scale for the matrix of a linear, which is the library's own linear then",
        rules=_rules(_MATRIX),
        qat=True,
        takes_apart=("scaled_dot_product_attention",),
    ),
)
