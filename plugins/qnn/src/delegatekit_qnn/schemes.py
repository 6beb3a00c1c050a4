"""The processor's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_TENSOR,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)

from .options import QnnOptions
from .targets import CHIPS, FIRST_WITH_WIDE_WEIGHTS

_BYTES: Final = TensorQuantization("uint8", observer="histogram")
_WORDS: Final = TensorQuantization("uint16")
#: The processor's output range of a hard sigmoid.
_UNIT: Final = TensorQuantization("uint16", scale=1 / 65535, zero_point=0)
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)
_WIDE: Final = TensorQuantization("int16", -32767, 32767, symmetric=True)
_NARROW: Final = TensorQuantization("int8", -7, 7, symmetric=True, granularity=PER_CHANNEL)
#: The processor scales sums and products by factors of few bits, and does not multiply all bits of 16-bit matrices:
#: measured on the simulator, relative to the largest result.
_INEXACT: Final = {"uint8": 2.0**-9, "uint16": 2.0**-8}

_WIDE_SCHEME: Final = "16a16w"

_CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")
_FUNCTIONS: Final = ("sigmoid", "tanh", "hardswish", "gelu", "elu", "leaky_relu", "exp", "sqrt", "rsqrt")


def _rules(activation: TensorQuantization, weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    def rule(*operators: str, **more: Any) -> QuantizationRule:
        return QuantizationRule(operators, input=activation, output=activation, **more)

    return (
        rule(
            "linear", "addmm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", weight=weight, fused=_CLAMPS
        ),
        rule("matmul", "bmm", "mm"),
        rule("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor", fused=_CLAMPS, numbers=True),
        rule("maximum", "minimum"),
        rule(*_FUNCTIONS),
        QuantizationRule(("hardsigmoid",), input=activation, output=_UNIT if activation is _WORDS else activation),
        rule("softmax", "log_softmax"),
        rule("layer_norm", "rms_norm"),
        rule("mean", "sum", "amax", "amin", "adaptive_avg_pool2d", "avg_pool2d"),
        QuantizationRule((*_CLAMPS, "max_pool2d", "cat", "stack", *MOVING_OPERATORS), shares=True),
    )


def _scheme(name: str, words: str, activation: TensorQuantization, weight: TensorQuantization) -> QuantizationScheme:
    return QuantizationScheme(
        name,
        words,
        rules=_rules(activation, weight),
        qat=True,
        takes_apart=("scaled_dot_product_attention",),
        relative_error=_INEXACT[activation.dtype],
    )


_SCHEMES: Final = (
    _scheme("8a8w", "uint8 activations and int8 weights, a scale for each output channel", _BYTES, _WEIGHT),
    _scheme(
        "8a8w-per-tensor",
        "uint8 activations and int8 weights, one scale for each weight",
        _BYTES,
        replace(_WEIGHT, granularity=PER_TENSOR),
    ),
    _scheme("8a4w", "uint8 activations and int4 weights, a scale for each output channel", _BYTES, _NARROW),
    _scheme("16a8w", "uint16 activations and int8 weights, a scale for each output channel", _WORDS, _WEIGHT),
    _scheme("16a4w", "uint16 activations and int4 weights, a scale for each output channel", _WORDS, _NARROW),
    _scheme(_WIDE_SCHEME, "uint16 activations and int16 weights, one scale for each; from HTP v73 on", _WORDS, _WIDE),
)


def schemes(options: QnnOptions) -> tuple[QuantizationScheme, ...]:
    """The schemes of a chip."""
    generation = CHIPS[options.soc].generation
    return tuple(item for item in _SCHEMES if item.name != _WIDE_SCHEME or generation >= FIRST_WITH_WIDE_WEIGHTS)
