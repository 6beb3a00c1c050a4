"""XNNPACK's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delegatekit_api import Call
from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_SAMPLE,
    PER_TENSOR,
    PER_TOKEN,
    Decline,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

from .ir.types import LARGEST_BIAS

#: Activations: XNNPACK accepts any scale that is a normal number, and the product of two of at least 2^-60 is one.
_ACTIVATION: Final = TensorQuantization("int8", observer="histogram", eps=2.0**-60)
#: The smallest scale of weights is larger: a bias, in steps of input times weight, must fit into 32 bits.
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)

#: XNNPACK adds it to the sums of integers, of which it must leave some room.
_BIAS: Final = TensorQuantization("int32", -LARGEST_BIAS, LARGEST_BIAS, symmetric=True)

_CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")
_MOVING: Final = tuple(
    name for name in MOVING_OPERATORS if name not in ("expand", "expand_as", "broadcast_to", "repeat", "flip")
)


# -- layers better left in float -------------------------------------------------------------------------------------


def _rounded_before(call: Call) -> str | None:
    """Logarithms and the like: eight bits are too few for a program's input, but not for values that have no more."""
    is_given = call.operands[0].producer is None
    return "its input is the program's, in more than eight bits" if is_given else None


def _number(call: Call) -> str | None:
    """The second operand is (or was) a number: small elements of a tensor are rounded to 0."""
    operand = call["other"]
    if isinstance(operand, int | float):
        return None if operand else "an operand is 0"
    if operand.is_constant and operand.value.numel() == 1:
        return None
    # Products of tensors have a rule of their own, whose reasons are reported.
    return "its divisor may be rounded to 0"


# -- the tables ------------------------------------------------------------------------------------------------------


def _function(*operators: str, declines: tuple[Decline, ...] = ()) -> QuantizationRule:
    """A rule for operators whose input is int8 already, and whose output gets its own scale."""
    return QuantizationRule(operators, input=_ACTIVATION, output=_ACTIVATION, follows=True, declines=declines)


def _static_rules(weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    return (
        QuantizationRule(
            ("linear", "addmm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"),
            input=_ACTIVATION,
            weight=weight,
            bias=_BIAS,
            output=_ACTIVATION,
            fused=_CLAMPS,
        ),
        QuantizationRule(
            ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor"),
            input=_ACTIVATION,
            output=_ACTIVATION,
            fused=_CLAMPS,
            follows=True,
        ),
        QuantizationRule(
            ("aten.mul.Tensor", "aten.div.Tensor"),
            input=_ACTIVATION,
            output=_ACTIVATION,
            fused=_CLAMPS,
            follows=True,
            numbers=True,
            declines=(_number,),
        ),
        _function("maximum", "minimum"),
        _function("sigmoid", "tanh", "leaky_relu", "elu", "hardswish", "gelu", "abs", "neg"),
        _function("exp", "log", "sqrt", "square", "aten.pow.Tensor_Scalar", declines=(_rounded_before,)),
        _function("aten.mean.dim", "adaptive_avg_pool2d", "avg_pool2d"),
        QuantizationRule((*_CLAMPS, "aten.upsample_bilinear2d.vec", "max_pool2d", "cat", *_MOVING), shares=True),
    )


#: Of weights that meet dynamic activations: as torchao's configs, which use the whole range of the type.
_DYNAMIC_WEIGHT: Final = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL)
#: XNNPACK's kernels have a bfloat16 scale for each group, and a float32 one for each channel.
_FOUR_BITS: Final = TensorQuantization("int4", symmetric=True, granularity=PER_CHANNEL)
_GROUPS: Final = replace(_FOUR_BITS, granularity=per_group(32), scale_dtype="bfloat16")
#: XNNPACK has no smallest scale of dynamic activations; this one still has an inverse.
_TOKENS: Final = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True, eps=2.0**-126)
_SAMPLES: Final = replace(_TOKENS, granularity=PER_SAMPLE)


def _dynamic_rules(weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    return (QuantizationRule(("linear",), input=_TOKENS, weight=weight),)


def _dynamic_convolution_rules() -> tuple[QuantizationRule, ...]:
    """XNNPACK computes pointwise convolutions as products of rows, each with a scale of its own, others by samples."""
    convolutions = ("conv1d", "conv2d")
    return (
        QuantizationRule(convolutions, input=_TOKENS, weight=_DYNAMIC_WEIGHT),
        QuantizationRule(
            (*convolutions, "conv_transpose1d", "conv_transpose2d"), input=_SAMPLES, weight=_DYNAMIC_WEIGHT
        ),
    )


SCHEMES: Final = (
    QuantizationScheme(
        "int8",
        "int8 activations and weights, a scale for each output channel",
        rules=_static_rules(_WEIGHT),
        qat=True,
    ),
    QuantizationScheme(
        "int8-per-tensor",
        "int8 activations and weights, one scale for each weight",
        rules=_static_rules(replace(_WEIGHT, granularity=PER_TENSOR)),
        qat=True,
    ),
    QuantizationScheme(
        "int8-dynamic",
        "int8 weights; activations are quantized at run time, row by row or sample by sample",
        kind="dynamic",
        rules=(*_dynamic_rules(_DYNAMIC_WEIGHT), *_dynamic_convolution_rules()),
    ),
    QuantizationScheme(
        "int8-dynamic-int4",
        "linear layers with int4 weights in groups of 32; activations as int8-dynamic (8da4w)",
        kind="dynamic",
        rules=_dynamic_rules(_GROUPS),
    ),
    QuantizationScheme(
        "int8-dynamic-int4-per-channel",
        "linear layers with int4 weights, a scale for each output channel; activations as int8-dynamic",
        kind="dynamic",
        rules=_dynamic_rules(_FOUR_BITS),
    ),
)
