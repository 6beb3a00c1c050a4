"""Core ML's quantization schemes as tables. The support table decides whether a layer is quantized."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from delegatekit_api.schemes import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_channels,
    per_group,
)

from .targets import IOS16, IOS17, IOS18, TARGETS

if TYPE_CHECKING:
    import torch

    from delegatekit_api import Call

    from .options import CoreMLOptions

#: Smaller scales have few digits in float16.
_EPS: Final = 2.0**-16
#: Not int8, which cannot cross the border of a delegate.
_ACTIVATION: Final = TensorQuantization("uint8", observer="histogram", eps=_EPS)
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
_CLAMPS: Final = ("relu", "relu6", "hardtanh")
_LAYERS: Final = ("linear", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d")

_STATIC: Final = QuantizationScheme(
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
)

_WHOLE: Final = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
_WEIGHTS: Final = QuantizationScheme(
    "int8-weight-only",
    "int8 weights, a scale for each output channel",
    kind="weight-only",
    rules=(QuantizationRule(("linear", "conv1d", "conv2d"), weight=_WHOLE),),
)

_FOUR_BITS: Final = TensorQuantization("int4", symmetric=True, granularity=per_group(32), eps=_EPS)
_GROUPS: Final = QuantizationScheme(
    "int4-weight-only",
    "linear layers with int4 weights in groups of 32",
    kind="weight-only",
    rules=(QuantizationRule(("linear",), weight=_FOUR_BITS),),
)

#: Output channels that share a table of 16 numbers, from iOS 18 on.
_SHARING: Final = 16


def palette(values: torch.Tensor, entries: int) -> torch.Tensor:
    """The numbers of a table: see `compression.palette`, which loads torch."""
    from .operators.compression import palette

    return palette(values, entries)


def depthwise(call: Call) -> str | None:
    """Depthwise convolutions stay in float: they have few weights, each of which matters."""
    is_depthwise = "conv" in call.operator and call["groups"] > 1 and call["weight"].shape[1] == 1
    return "a depthwise convolution: each of its few weights matters" if is_depthwise else None


def _tables(bits: int, sharing: int = 0) -> QuantizationScheme:
    """Tables of as many numbers as the bits have places: for a number of output channels each, or for a weight."""
    one = TensorQuantization("uint8", high=(1 << bits) - 1, table=palette)
    forms = (*([replace(one, granularity=per_channels(sharing))] if sharing else []), one)
    layers = ("linear", "conv1d", "conv2d", "embedding")
    return QuantizationScheme(
        f"{bits}-bit-tables",
        f"weights of {bits} bits: places in a table of numbers, one for "
        + (f"{sharing} output channels" if sharing else "each weight"),
        kind="weight-only",
        rules=tuple(QuantizationRule(layers, weight=form, declines=(depthwise,)) for form in forms),
    )


_SINCE: Final = (
    (IOS17, _STATIC),
    (IOS16, _WEIGHTS),
    (IOS18, _GROUPS),
    *((IOS16, _tables(bits)) for bits in (8, 6)),
)


def schemes(options: CoreMLOptions) -> tuple[QuantizationScheme, ...]:
    """The schemes that the deployment target supports."""
    target = TARGETS[options.target]
    found = [scheme for oldest, scheme in _SINCE if oldest <= target]
    if target >= IOS16:
        found.append(_tables(4, _SHARING if target >= IOS18 else 0))
    # Scales have the type of the numbers that the integers are unpacked to.
    return tuple(scheme.with_scales(options.precision) for scheme in found)
