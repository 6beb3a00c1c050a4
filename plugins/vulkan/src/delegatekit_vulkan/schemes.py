"""Vulkan's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

if TYPE_CHECKING:
    from .options import VulkanOptions

_ACTIVATION: Final = TensorQuantization("int8", observer="histogram")
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL)
#: Four bits use the whole range of the type, as in torchao's configs.
_GROUPS: Final = TensorQuantization("int4", symmetric=True, granularity=per_group(32))
_ROWS: Final = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)

_CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")

_SCHEMES: Final = (
    QuantizationScheme(
        "int8",
        "convolutions, linear layers and sums on int8, a scale for each output channel of the weights",
        rules=(
            QuantizationRule(
                ("linear", "addmm", "conv2d", "conv_transpose2d"),
                input=_ACTIVATION,
                weight=_WEIGHT,
                output=_ACTIVATION,
                fused=_CLAMPS,
            ),
            QuantizationRule(("aten.add.Tensor",), input=_ACTIVATION, output=_ACTIVATION, fused=_CLAMPS, follows=True),
            # Zeros before a convolution become its own padding.
            QuantizationRule(("pad", "constant_pad_nd"), shares=True),
        ),
        qat=True,
    ),
    QuantizationScheme(
        "int8-weight-only",
        "linear layers with int8 weights, a scale for each output channel; activations stay float",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_WEIGHT),),
    ),
    QuantizationScheme(
        "int4-weight-only",
        "linear layers with int4 weights in groups of 32; activations stay float",
        kind="weight-only",
        rules=(QuantizationRule(("linear",), weight=_GROUPS),),
    ),
    QuantizationScheme(
        "int8-dynamic-int4",
        "linear layers with int4 weights in groups of 32; activations are quantized at run time, row by row (8da4w)",
        kind="dynamic",
        rules=(QuantizationRule(("linear",), input=_ROWS, weight=_GROUPS),),
    ),
)


def schemes(options: VulkanOptions) -> tuple[QuantizationScheme, ...]:
    """The schemes, with scales of weights in the device's type of numbers."""
    return tuple(scheme.with_scales("float16" if options.fp16 else "float32") for scheme in _SCHEMES)
