"""MLX's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from typing import Final

from delegatekit_api.schemes import PER_CHANNEL, QuantizationRule, QuantizationScheme, TensorQuantization, per_group

#: Smaller scales have few digits in float16.
_EPS: Final = 2.0**-16
_EIGHT_BITS: Final = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
_FOUR_BITS: Final = TensorQuantization("int4", symmetric=True, granularity=per_group(32), eps=_EPS)

SCHEMES: Final = (
    QuantizationScheme(
        "int8-weight-only",
        "linear layers with int8 weights, a scale for each output channel",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_EIGHT_BITS),),
    ),
    QuantizationScheme(
        "int4-weight-only",
        "linear layers with int4 weights in groups of 32",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_FOUR_BITS),),
    ),
)
