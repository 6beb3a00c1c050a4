"""Quantization schemes for TOSA's integers as tables. The support table decides whether a layer is quantized.

All devices have the same schemes: layers that a device cannot compute stay in float there, with the reason.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

from delegatekit_api import Call
from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_TENSOR,
    Decline,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)
from delegatekit_toolkit.arguments import per_axis

_ACTIVATION: Final = TensorQuantization("int8", observer="histogram")
#: Fine enough for the whole range.
_WIDE: Final = TensorQuantization("int16", symmetric=True)
#: The smallest scale of weights is larger: a bias, in steps of input times weight, must fit into 32 bits.
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
_BIAS: Final = TensorQuantization("int32", symmetric=True)

#: Scores of minus this value, or less, are masked for a softmax, whatever the others are.
HIDDEN: Final = 80.0

#: Fused to the layer before: saturation, or two bounds, compute them.
CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")

#: Functions of single values: each is one table of 256 results.
FUNCTIONS: Final = (
    *("sigmoid", "tanh", "hardswish", "hardsigmoid", "gelu", "silu", "mish", "softplus", "log_sigmoid"),
    *("elu", "celu", "selu", "leaky_relu", "relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"),
    *("hardshrink", "softshrink", "threshold"),
    *("abs", "neg", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "rsqrt", "square", "reciprocal"),
    *("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf"),
    *("sign", "floor", "ceil", "round", "trunc"),
    *("aten.pow.Tensor_Scalar", "aten.rsub.Scalar"),
)
_COMPARED: Final = ("eq", "ne", "gt", "ge", "lt", "le")
_SMALL_WINDOW: Final = 16


# -- layers better quantized in another way, or left in float ---------------------------------------------------------


def _small_window(call: Call) -> str | None:
    """Averages over few values have about their range, and the scale that avoids a second rounding."""
    axes = 1 if "1d" in call.operator else 2
    window = math.prod(per_axis(call["kernel_size"], axes, 1))
    return None if window <= _SMALL_WINDOW else f"its window has {window} elements"


def _first(call: Call) -> str | None:
    """All of its inputs are the program's."""
    inputs = all(operand.producer is None for operand in call.operands)
    return None if inputs else "its input is computed"


def _hides(call: Call) -> str | None:
    """Only a softmax reads the filled tensor; the fill is negligible beside any plausible score."""
    number = call["value"]
    if not isinstance(number, int | float) or number > -HIDDEN:
        return "its fill value hides nothing"
    readers = call.users
    alone = len(readers) == 1 and readers[0].operator.startswith("aten.softmax.")
    return None if alone else "what it fills is not for a softmax alone"


def _sane(call: Call) -> str | None:
    """Fill values are in the range of the others."""
    numbers = [item for item in call.arguments.values() if isinstance(item, int | float)]
    wrong = next((item for item in numbers if not abs(item) < HIDDEN), None)
    return None if wrong is None else f"{wrong} has no place in the range of the others"


# -- the tables ------------------------------------------------------------------------------------------------------


def _rule(*operators: str, **more: Any) -> QuantizationRule:
    """A rule whose input and output have scales of their own."""
    return QuantizationRule(operators, input=_ACTIVATION, output=_ACTIVATION, **more)


#: Operators whose inputs and result have one scale, with reasons to decline; operators that move values are among them.
_SHARING: Final[tuple[tuple[tuple[str, ...], tuple[Decline, ...]], ...]] = (
    (
        (
            *("amax", "amin", "max_pool1d", "max_pool2d"),
            *("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec"),
            *("cat", "stack", "roll", *MOVING_OPERATORS),
        ),
        (),
    ),
    (("avg_pool1d", "avg_pool2d"), (_small_window,)),
)


def _rules(weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    return (
        _rule(
            *("linear", "addmm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"),
            weight=weight,
            bias=_BIAS,
            fused=CLAMPS,
        ),
        _rule("matmul", "bmm", "mm", fused=CLAMPS),
        _rule("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", fused=CLAMPS, numbers=True),
        _rule("maximum", "minimum", "glu", "prelu"),
        _rule(*FUNCTIONS),
        _rule("softmax", "log_softmax"),
        _rule("masked_fill", fused=("softmax",), declines=(_hides,)),
        _rule("where", "masked_fill", declines=(_sane,)),
        QuantizationRule(_COMPARED, input=_ACTIVATION, follows=True),
        # Rows of the table are quantized with the result's scale directly: they are rounded once.
        QuantizationRule(("embedding",), weight=_WIDE, output=_ACTIVATION),
        _rule("layer_norm", "rms_norm", "group_norm", "instance_norm"),
        _rule("mean", "sum", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
        # Nothing is quantized before these: they have their own scales for the program's input.
        *(_rule(*names, declines=(*declines, _first)) for names, declines in _SHARING),
        *(QuantizationRule(names, shares=True, declines=declines) for names, declines in _SHARING),
        QuantizationRule(("index_select",), shares=True),
        _rule("avg_pool1d", "avg_pool2d"),
    )


def _wide(rule: QuantizationRule) -> QuantizationRule:
    """The rule with int16 activations; biases stay float, and become int48 in the lowering."""
    return replace(rule, input=rule.input and _WIDE, output=rule.output and _WIDE, bias=None)


#: Two products and a softmax.
_APART: Final = ("scaled_dot_product_attention",)

SCHEMES: Final = (
    QuantizationScheme(
        "int8",
        "int8 activations and weights, a scale for each output channel",
        rules=_rules(_WEIGHT),
        qat=True,
        takes_apart=_APART,
    ),
    QuantizationScheme(
        "int8-per-tensor",
        "int8 activations and weights, one scale for each weight",
        rules=_rules(replace(_WEIGHT, granularity=PER_TENSOR)),
        qat=True,
        takes_apart=_APART,
    ),
    QuantizationScheme(
        "int16",
        "int16 activations and int8 weights, a scale for each output channel",
        rules=tuple(map(_wide, _rules(_WEIGHT))),
        qat=True,
        takes_apart=_APART,
    ),
)
