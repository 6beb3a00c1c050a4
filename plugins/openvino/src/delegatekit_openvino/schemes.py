"""OpenVINO's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from typing import Final

from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

#: Smaller scales have few digits in float16.
_EPS: Final = 2.0**-16
_ACTIVATION: Final = TensorQuantization("uint8", observer="histogram", eps=_EPS)
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
_CLAMPS: Final = ("relu", "relu6", "hardtanh")
_LAYERS: Final = ("linear", "conv1d", "conv2d")
_INT8: Final = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
_INT4: Final = TensorQuantization("int4", symmetric=True, granularity=per_group(32), eps=_EPS)

SCHEMES: Final = (
    QuantizationScheme(
        "int8",
        "uint8 activations and int8 weights, a scale for each output channel",
        rules=(
            QuantizationRule(_LAYERS, input=_ACTIVATION, weight=_WEIGHT, output=_ACTIVATION, fused=_CLAMPS),
            QuantizationRule(
                ("aten.add.Tensor", "aten.mul.Tensor"),
                input=_ACTIVATION,
                output=_ACTIVATION,
                fused=_CLAMPS,
                follows=True,
            ),
            QuantizationRule((*_CLAMPS, "max_pool2d", "cat", *MOVING_OPERATORS), shares=True),
        ),
        qat=True,
    ),
    QuantizationScheme(
        "int8-weight-only",
        "linear layers with int8 weights, a scale for each output channel",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_INT8),),
    ),
    QuantizationScheme(
        "int4-weight-only",
        "linear layers with int4 weights in groups of 32",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_INT4),),
    ),
)
