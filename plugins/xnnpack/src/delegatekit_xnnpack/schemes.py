"""What XNNPACK quantizes: its schemes as tables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_SAMPLE,
    PER_TENSOR,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    RuleCondition,
    TensorQuantization,
    argument,
    per_group,
)

if TYPE_CHECKING:
    from torch.fx import Node

_MAX_RANK = 6

#: Activations: XNNPACK computes with any scale that is a normal number, and so is the product of two of at least 2^-60.
_ACTIVATION: Final = TensorQuantization("int8", observer="histogram", eps=2.0**-60)
#: The smallest scale of weights is larger: a bias, in steps of input times weight, must fit into 32 bits.
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)

_CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")
_MOVING: Final = tuple(
    name for name in MOVING_OPERATORS if name not in ("expand", "expand_as", "broadcast_to", "repeat", "flip")
)


# -- conditions ------------------------------------------------------------------------------------------------------


def _rank(node: Node) -> str | None:
    rank = node.meta["val"].dim() if hasattr(node.meta["val"], "dim") else 0
    return f"it has {rank} dimensions, more than {_MAX_RANK}" if rank > _MAX_RANK else None


def _alpha(node: Node) -> str | None:
    return "alpha is not 1" if node.kwargs.get("alpha", 1) != 1 else None


def _means_over_space(node: Node) -> str | None:
    """Global average pooling: the mean of (N, C, H, W) over H and W, or adaptive pooling to 1 x 1."""
    source: Any = node.args[0]
    rank = source.meta["val"].dim()
    if rank != 4:
        return "only means over H and W of (N, C, H, W) have an int8 kernel"
    wanted: Any = node.args[1] if len(node.args) > 1 else None
    if "adaptive" in str(node.target):
        sizes = wanted if isinstance(wanted, list | tuple) else (wanted,)
        return None if all(size == 1 for size in sizes) else "only pooling to 1 x 1 has an int8 kernel"
    dims = {dim % rank for dim in (wanted if isinstance(wanted, list | tuple) else ())}
    return None if dims == {2, 3} else "only means over H and W have an int8 kernel"


def _whole_window(node: Node) -> str | None:
    """Average pooling over all of (N, C, H, W) is global."""
    source: Any = argument(node, "self")
    sizes, kernel = source.meta["val"].shape, argument(node, "kernel_size")
    window = tuple(kernel) * (1 if len(kernel) > 1 else 2)
    padding, divisor = argument(node, "padding"), argument(node, "divisor_override")
    unpadded = not (any(padding) if isinstance(padding, list | tuple) else padding)
    whole = len(sizes) == 4 and tuple(map(str, sizes[2:])) == tuple(map(str, window))
    if whole and unpadded and divisor in (None, math.prod(window)):
        return None
    return "only average pooling over all of H and W has an int8 kernel"


def _rounded_before(node: Node) -> str | None:
    """Logarithms and their like: eight bits are too few for what the program is given, but not for what has no more."""
    source: Any = node.args[0]
    return "its input is the program's, in more than eight bits" if source.op == "placeholder" else None


def _number(node: Node) -> str | None:
    """The second operand is a number (or was one): of a tensor's elements, small ones are rounded to 0."""
    operand: Any = node.args[1]
    if isinstance(operand, int | float):
        return None if operand else "an operand is 0"
    if operand.op == "get_attr" and operand.meta["val"].numel() == 1:
        return None
    return "its divisor may be rounded to 0" if "div" in str(node.target) else "its operands are tensors"


def _square(node: Node) -> str | None:
    exponent = argument(node, "exponent")
    return None if exponent == 2 else f"exponent {exponent} has no int8 kernel"


def _known_ratio(node: Node) -> str | None:
    """An image is resized to a size that does not change, by the ratio of the sizes."""
    source: Any = argument(node, "input")
    before, after = source.meta["val"].shape[2:], node.meta["val"].shape[2:]
    if not all(isinstance(size, int) for size in (*before, *after)):
        return "a size that changes has no kernel"
    factors = argument(node, "scale_factors")
    if not factors or argument(node, "output_size") is not None or argument(node, "align_corners"):
        return None
    exact = all(old * factor == new for old, factor, new in zip(before, factors, after, strict=True))
    return None if exact else "scale factors that are not the ratio of the sizes have no kernel"


def _without_indices(node: Node) -> str | None:
    ceil_mode = node.args[5] if len(node.args) > 5 else False
    return "ceil_mode has no kernel" if ceil_mode else None


def _constant_mode(node: Node) -> str | None:
    mode = node.args[2] if "aten.pad" in str(node.target) and len(node.args) > 2 else "constant"
    return None if mode == "constant" else f"pads of mode {mode} have no kernel"


def _numeric_bounds(node: Node) -> str | None:
    return "bounds are tensors" if str(node.target) == "aten.clamp.Tensor" else None


def _batched(node: Node) -> str | None:
    source: Any = argument(node, "input")
    spatial = 1 if "1d" in str(node.target) else 2
    return None if source.meta["val"].dim() == spatial + 2 else "its input has no batch axis"


def _dense(node: Node) -> str | None:
    """Of the two kernels, the depthwise one refuses samples, and the other takes ten times as long as in float."""
    source: Any = argument(node, "input")
    depthwise = 1 < argument(node, "groups") == source.meta["val"].shape[1]
    return "XNNPACK has no depthwise convolution of what is quantized at run time" if depthwise else None


def _evenly_padded(node: Node) -> str | None:
    """Uneven padding is an operator of its own in the edge dialect."""
    if argument(node, "padding") != "same":
        return None
    kernel: Any = argument(node, "weight").meta["val"].shape[2:]
    uneven = any(step * (size - 1) % 2 for step, size in zip(argument(node, "dilation"), kernel, strict=True))
    return "its padding is uneven" if uneven else None


def is_pointwise(node: Node) -> bool:
    """Whether a convolution, as exported or in the edge dialect, multiplies each pixel with the same matrix.

    XNNPACK computes these as products of rows.
    """
    weight, padding = argument(node, "weight"), argument(node, "padding")
    settings = (*argument(node, "stride"), argument(node, "groups"), *weight.meta["val"].shape[2:])
    return all(setting == 1 for setting in settings) and (isinstance(padding, str) or not any(padding))


def _wide(node: Node) -> str | None:
    return "it is pointwise" if is_pointwise(node) else None


def _pointwise(node: Node) -> str | None:
    return None if is_pointwise(node) else "it is not pointwise"


# -- the tables ------------------------------------------------------------------------------------------------------


def _function(*operators: str, when: tuple[RuleCondition, ...] = ()) -> QuantizationRule:
    """A rule for operators that go on with what is int8 already, to a scale of their own."""
    return QuantizationRule(operators, input=_ACTIVATION, output=_ACTIVATION, follows=True, when=when)


def _static_rules(weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    return (
        QuantizationRule(
            ("linear", "addmm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"),
            input=_ACTIVATION,
            weight=weight,
            output=_ACTIVATION,
            fused=_CLAMPS,
        ),
        QuantizationRule(
            ("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor"),
            input=_ACTIVATION,
            output=_ACTIVATION,
            fused=_CLAMPS,
            follows=True,
            when=(_rank, _alpha),
        ),
        QuantizationRule(
            ("aten.mul.Tensor", "aten.div.Tensor"),
            input=_ACTIVATION,
            output=_ACTIVATION,
            fused=_CLAMPS,
            follows=True,
            numbers=True,
            when=(_rank, _number),
        ),
        _function("maximum", "minimum", when=(_rank,)),
        _function("sigmoid", "tanh", "leaky_relu", "elu", "hardswish", "gelu", "abs", "neg"),
        _function("exp", "log", "sqrt", "square", when=(_rounded_before,)),
        _function("aten.pow.Tensor_Scalar", when=(_rounded_before, _square)),
        _function("aten.mean.dim", "adaptive_avg_pool2d", when=(_means_over_space,)),
        _function("avg_pool2d", when=(_whole_window,)),
        QuantizationRule(_CLAMPS, shares=True, when=(_numeric_bounds,)),
        QuantizationRule(("aten.upsample_bilinear2d.vec",), shares=True, when=(_known_ratio,)),
        QuantizationRule(("max_pool2d",), shares=True, when=(_without_indices,)),
        QuantizationRule(("cat", *_MOVING), shares=True, when=(_rank, _constant_mode)),
    )


#: Of weights that meet dynamic activations: as torchao's configs, which take the whole range of the type.
_EPS: Final = 2.0**-23
_DYNAMIC_WEIGHT: Final = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL, eps=_EPS)
#: XNNPACK has no smallest scale of dynamic activations; this one still has an inverse.
_TOKENS: Final = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True, eps=2.0**-126)
_SAMPLES: Final = replace(_TOKENS, granularity=PER_SAMPLE)


def _dynamic_rules(weight: TensorQuantization) -> tuple[QuantizationRule, ...]:
    return (QuantizationRule(("linear",), input=_TOKENS, weight=weight),)


def _dynamic_convolution_rules() -> tuple[QuantizationRule, ...]:
    return (
        QuantizationRule(("conv1d", "conv2d"), input=_TOKENS, weight=_DYNAMIC_WEIGHT, when=(_pointwise, _batched)),
        QuantizationRule(
            ("conv1d", "conv2d"), input=_SAMPLES, weight=_DYNAMIC_WEIGHT, when=(_wide, _batched, _dense, _evenly_padded)
        ),
        QuantizationRule(
            ("conv_transpose1d", "conv_transpose2d"), input=_SAMPLES, weight=_DYNAMIC_WEIGHT, when=(_batched,)
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
        rules=_dynamic_rules(TensorQuantization("int4", symmetric=True, granularity=per_group(32), eps=_EPS)),
    ),
    QuantizationScheme(
        "int8-dynamic-int4-per-channel",
        "linear layers with int4 weights, a scale for each output channel; activations as int8-dynamic",
        kind="dynamic",
        rules=_dynamic_rules(TensorQuantization("int4", symmetric=True, granularity=PER_CHANNEL, eps=_EPS)),
    ),
)
