"""What Ethos-U quantizes: its schemes as tables.

Conditions repeat the constraints of the support table that an exported node can break, so that nothing is quantized
which the NPU would then leave to the CPU.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from delegatekit_api import (
    MOVING_OPERATORS,
    PER_CHANNEL,
    PER_TENSOR,
    QuantizationRule,
    QuantizationScheme,
    RuleCondition,
    TensorQuantization,
    argument,
    dynamic_operand,
    per_axis,
)

from .limits import (
    HIDDEN,
    adaptive_obstacle,
    average_obstacle,
    common_rank_obstacle,
    convolution_obstacle,
    count,
    divisor_obstacle,
    extreme_obstacle,
    indices_obstacle,
    masked_obstacle,
    matrices_obstacle,
    maximum_obstacle,
    norm_obstacle,
    rank_obstacle,
    resize_obstacle,
    softmax_obstacle,
    sum_obstacle,
    transposed_obstacle,
)
from .targets import CHOICES, COMPARISONS, COMPUTED_MASKS, LOOK_UPS, RESIZES, TARGETS, WIDE_PRODUCTS, Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from torch.fx import Node

_ACTIVATION: Final = TensorQuantization("int8", observer="histogram")
#: Fine enough for the whole range.
_WIDE: Final = TensorQuantization("int16", symmetric=True, observer="minmax")
#: The smallest scale of weights is larger: a bias, in steps of input times weight, must fit into 32 bits.
_WEIGHT: Final = TensorQuantization("int8", -127, 127, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
_BIAS: Final = TensorQuantization("int32", symmetric=True)

#: Fused to what comes before: saturation, or two bounds, do them.
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
#: Products of two computed matrices.
_PRODUCTS: Final = ("matmul", "bmm", "mm")
#: What needs a table: the NPU has none for int16.
_EIGHT_BITS: Final = frozenset(
    {*FUNCTIONS, "glu", "aten.div.Tensor"}
    - {"relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max"}
    - {"abs", "neg", "leaky_relu", "hardswish", "hardsigmoid"}
    - {"sigmoid", "tanh", "silu", "gelu", "mish", "softplus", "log_sigmoid", "elu", "celu", "selu", "exp", "expm1"}
    - {"erf", "atan", "asinh"}
)
_COMPARED: Final = ("eq", "ne", "gt", "ge", "lt", "le")
_SMALL_WINDOW: Final = 16


# -- conditions ------------------------------------------------------------------------------------------------------


def _shape(node: Any) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)


def _static(node: Node) -> str | None:
    found = dynamic_operand(node)
    return None if found is None else f"{found} has a size that changes from call to call"


def _few_axes(node: Node) -> str | None:
    value = node.meta["val"]
    results = value if isinstance(value, list | tuple) else (value,)
    return next((reason for item in results if (reason := rank_obstacle(item.shape))), None)


def _alpha(node: Node) -> str | None:
    return "alpha is not 1" if node.kwargs.get("alpha", 1) != 1 else None


def _matrix(node: Node) -> str | None:
    return None if len(_shape(node.args[1])) == 2 else "its weight is a vector"


def _plain_product(node: Node) -> str | None:
    """For addmm: a number for each column, and nothing is scaled."""
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return "alpha or beta is not 1"
    bias: Any = node.args[0]
    return None if _shape(bias) in ((1,), (_shape(node)[-1],)) else f"a bias of {_shape(bias)}"


def _constant_slopes(node: Node) -> str | None:
    slopes: Any = node.args[1]
    return None if slopes.op == "get_attr" else "its slopes are computed"


def _numeric(node: Node) -> str | None:
    """The second operand is a number (or was one)."""
    operand: Any = node.args[1]
    if isinstance(operand, int | float):
        return None
    if operand.op == "get_attr" and operand.meta["val"].numel() == 1:
        return None
    return "its second operand is a tensor"


def _one_tensor(node: Node) -> str | None:
    return None if len(node.all_input_nodes) == 1 else "its parameters are tensors"


def _convolution(node: Node) -> str | None:
    weight = _shape(node.args[1])
    axes = len(weight) - 2
    if len(_shape(node.args[0])) != axes + 2:
        return "its input has no batch axis"
    stride, dilation = per_axis(argument(node, "stride"), axes, 1), per_axis(argument(node, "dilation"), axes, 1)
    if "transpose" in str(node.target):
        return transposed_obstacle(weight, stride, dilation)
    padding = argument(node, "padding")
    if padding == "same" and any(step * (size - 1) % 2 for step, size in zip(dilation, weight[2:], strict=True)):
        return "its padding is uneven"
    padding = () if isinstance(padding, str) else per_axis(padding, axes, 0)
    return convolution_obstacle(_shape(node.args[0]), weight, _shape(node), stride, dilation, padding)


def _average(node: Node) -> str | None:
    axes = 1 if "1d" in str(node.target) else 2
    kernel = per_axis(argument(node, "kernel_size"), axes, 1)
    return average_obstacle(_shape(node.args[0]), kernel)


def _small_window(node: Node) -> str | None:
    """Averages over few values have about their range, and the scale that spares a second rounding."""
    axes = 1 if "1d" in str(node.target) else 2
    window = math.prod(per_axis(argument(node, "kernel_size"), axes, 1))
    return None if window <= _SMALL_WINDOW else f"its window has {window} elements"


def _first(node: Node) -> str | None:
    """All of its inputs are the program's."""
    inputs = all(item.op in ("placeholder", "get_attr") for item in node.all_input_nodes)
    return None if inputs else "its input is computed"


def _maximum(node: Node) -> str | None:
    axes = 1 if "1d" in str(node.target) else 2
    kernel = per_axis(argument(node, "kernel_size"), axes, 1)
    return maximum_obstacle(_shape(node.args[0]), kernel, per_axis(argument(node, "dilation"), axes, 1))


def _eight_bits(node: Node) -> str | None:
    return "for int16 the NPU has tables of smooth functions only"


def _only(target: Target, what: str) -> tuple[RuleCondition, ...]:
    """The condition of what the U85 alone can do; none for a U85."""
    reason = target.lacks(what)
    return () if reason is None else (lambda node: reason,)


def _one_divisor(node: Node) -> str | None:
    return divisor_obstacle(argument(node, "padding"), argument(node, "count_include_pad"), argument(node, "ceil_mode"))


def _adaptive(node: Node) -> str | None:
    return adaptive_obstacle(_shape(node.args[0]), _shape(node), 1 if "1d" in str(node.target) else 2)


def _resize(target: Target) -> RuleCondition:
    def check(node: Node) -> str | None:
        mode = "bilinear" if "bilinear" in str(node.target) else "nearest"
        corners = mode == "bilinear" and bool(argument(node, "align_corners"))
        factors = argument(node, "scale_factors") if str(node.target).endswith(".vec") else None
        lacks = target.lacks(RESIZES[mode])
        return resize_obstacle(_shape(node.args[0]), _shape(node), mode, corners, factors, lacks)

    return check


def _softmax(node: Node) -> str | None:
    return softmax_obstacle(_shape(node.args[0]), argument(node, "dim"))


def _hides(target: Target) -> RuleCondition:
    """A softmax, and nothing else, reads what is filled; the fill is nothing beside any sane score."""
    other, computed = target.lacks(CHOICES), target.lacks(COMPUTED_MASKS)

    def check(node: Node) -> str | None:
        number: Any = node.args[2]
        if not isinstance(number, int | float) or number > -HIDDEN:
            return other or "it fills in a number that hides nothing"
        readers = list(node.users)
        if len(readers) != 1 or "aten.softmax" not in str(readers[0].target):
            return other or "what it fills is not for a softmax alone"
        mask: Any = node.args[1]
        if mask.op != "get_attr" and computed:
            return computed
        return masked_obstacle(_shape(node), _shape(node.args[0])) or _softmax(readers[0])

    return check


def _sane(node: Node) -> str | None:
    """Numbers that are filled in have a place in the range of the others."""
    numbers = [item for item in node.args if isinstance(item, int | float)]
    wrong = next((item for item in numbers if not abs(item) < HIDDEN), None)
    return None if wrong is None else f"{wrong} has no place in the range of the others"


def _common_rank(node: Node) -> str | None:
    shapes = [_shape(item) for item in node.all_input_nodes if item.op != "get_attr"]
    return common_rank_obstacle(shapes, _shape(node))


def _narrow_indices(node: Node) -> str | None:
    """Indices are int32, or constant."""
    indices: Any = node.args[1] if "embedding" in str(node.target) else node.args[2]
    # Schemes are listed without torch.
    dtype = str(indices.meta["val"].dtype)
    return None if indices.op == "get_attr" or dtype == "torch.int32" else indices_obstacle(dtype)


def _constant_parameters(node: Node) -> str | None:
    computed = [item for item in node.all_input_nodes[1:] if item.op != "get_attr"]
    return f"its parameter {computed[0].name} is computed" if computed else None


def _normalized_rows(node: Node) -> str | None:
    shape, sizes = _shape(node.args[0]), argument(node, "normalized_shape")
    return norm_obstacle(shape, count(shape[: len(shape) - len(sizes)]), centred="rms" not in str(node.target))


def _normalized_groups(node: Node) -> str | None:
    shape = _shape(node.args[0])
    return norm_obstacle(shape, shape[0] * argument(node, "num_groups"))


def _normalized_channels(node: Node) -> str | None:
    if not argument(node, "use_input_stats"):
        return "it normalizes by recorded statistics"
    shape = _shape(node.args[0])
    return norm_obstacle(shape, count(shape[:2]))


def _few_summands(node: Node) -> str | None:
    return sum_obstacle(_shape(node.args[0]), argument(node, "dim") if "dim" in str(node.target) else None)


def _small_axes(node: Node) -> str | None:
    return extreme_obstacle(_shape(node.args[0]), argument(node, "dim"))


def _matrices(node: Node) -> str | None:
    return matrices_obstacle(_shape(node.args[0]), _shape(node.args[1]))


def _constant_mode(node: Node) -> str | None:
    mode = node.args[2] if "aten.pad" in str(node.target) and len(node.args) > 2 else "constant"
    return None if mode == "constant" else f"pads of mode {mode} are not for the NPU"


# -- the tables ------------------------------------------------------------------------------------------------------


def _rule(*operators: str, when: tuple[RuleCondition, ...] = (), **more: Any) -> QuantizationRule:
    """A rule whose input and output have scales of their own."""
    return QuantizationRule(operators, input=_ACTIVATION, output=_ACTIVATION, when=(_static, _few_axes, *when), **more)


def _shared(*operators: str, when: tuple[RuleCondition, ...] = ()) -> QuantizationRule:
    return QuantizationRule(operators, shares=True, when=(_static, _few_axes, *when))


#: Operators whose inputs and result have one scale; what moves values is among them.
def _sharing(target: Target) -> tuple[tuple[tuple[str, ...], tuple[RuleCondition, ...]], ...]:
    return (
        (("amax", "amin"), (_small_axes,)),
        (("max_pool1d", "max_pool2d"), (_maximum,)),
        (("avg_pool1d", "avg_pool2d"), (_average, _small_window)),
        (("aten.upsample_nearest2d.vec", "aten.upsample_bilinear2d.vec"), (_resize(target),)),
        (("cat", "stack", "roll", "mT", *MOVING_OPERATORS), (_constant_mode,)),
    )


def _rules(weight: TensorQuantization, target: Target) -> tuple[QuantizationRule, ...]:
    look_ups, choices, comparisons = (_only(target, what) for what in (LOOK_UPS, CHOICES, COMPARISONS))
    fills = (
        _rule("masked_fill", fused=("softmax",), when=(_hides(target),)),
        _rule("where", *["masked_fill"] * (not choices), when=(*choices, _common_rank, _sane)),
    )
    if not choices:  # told is the reason of the last
        fills = fills[::-1]
    return (
        _rule("linear", weight=weight, bias=_BIAS, fused=CLAMPS, when=(_matrix,)),
        _rule("addmm", weight=weight, bias=_BIAS, fused=CLAMPS, when=(_plain_product,)),
        _rule(
            *("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"),
            weight=weight,
            bias=_BIAS,
            fused=CLAMPS,
            when=(_convolution,),
        ),
        _rule(*_PRODUCTS, fused=CLAMPS, when=(_matrices,)),
        _rule("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", fused=CLAMPS, when=(_alpha,)),
        _rule(
            *("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"),
            fused=CLAMPS,
            numbers=True,
            when=(_alpha, _numeric),
        ),
        _rule("maximum", "minimum", "glu"),
        _rule("prelu", when=(_constant_slopes,)),
        _rule("aten.div.Tensor", fused=CLAMPS),
        _rule(*FUNCTIONS, when=(_one_tensor,)),
        _rule("softmax", "log_softmax", when=(_softmax,)),
        *fills,
        QuantizationRule(
            _COMPARED, input=_ACTIVATION, follows=True, when=(*comparisons, _common_rank, _static, _few_axes)
        ),
        # Rows of the table get the scale of the result at once: they are rounded once.
        QuantizationRule(
            ("embedding",), weight=_WIDE, output=_ACTIVATION, when=(*look_ups, _static, _few_axes, _narrow_indices)
        ),
        _rule("layer_norm", "rms_norm", when=(_constant_parameters, _normalized_rows)),
        _rule("group_norm", when=(_constant_parameters, _normalized_groups)),
        _rule("instance_norm", when=(_constant_parameters, _normalized_channels)),
        _rule("mean", "sum", when=(_few_summands,)),
        _rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", when=(_adaptive,)),
        # Nothing is quantized in front of these: they have their own scales for the program's input.
        *(_rule(*names, when=(*when, _first)) for names, when in _sharing(target)),
        *(_shared(*names, when=when) for names, when in _sharing(target)),
        _shared("index_select", when=(*look_ups, _narrow_indices)),
        _rule("avg_pool1d", "avg_pool2d", when=(_average,)),
    )


def _wide_rules(rules: Sequence[QuantizationRule], target: Target) -> Iterator[QuantizationRule]:
    """The rules with activations of int16; biases stay float, and become int48 in the lowering."""
    for rule in rules:
        given = {"input": rule.input and _WIDE, "output": rule.output and _WIDE, "bias": None}
        averages, products = "avg_pool2d" in rule.operators, rule.operators == _PRODUCTS
        for needs_eight in (False, True):
            narrow: Collection[str] = () if rule.numbers else _EIGHT_BITS
            operators = tuple(name for name in rule.operators if (name in narrow) == needs_eight)
            more = (*[_one_divisor] * averages, *[_eight_bits] * needs_eight, *_only(target, WIDE_PRODUCTS) * products)
            if operators:
                yield replace(rule, operators=operators, when=(*rule.when, *more), **given)  # type: ignore[arg-type]


#: Two products and a softmax.
_APART: Final = ("scaled_dot_product_attention",)


@lru_cache(maxsize=len(TARGETS))
def schemes(target: str) -> tuple[QuantizationScheme, ...]:
    """The schemes for an accelerator. What is quantized for an Ethos-U55 runs on all others, too."""
    device = TARGETS[target]
    apart = _only(device, WIDE_PRODUCTS)
    return (
        QuantizationScheme(
            "int8",
            "int8 activations and weights, a scale for each output channel",
            rules=_rules(_WEIGHT, device),
            qat=True,
            takes_apart=_APART,
        ),
        QuantizationScheme(
            "int8-per-tensor",
            "int8 activations and weights, one scale for each weight",
            rules=_rules(replace(_WEIGHT, granularity=PER_TENSOR), device),
            qat=True,
            takes_apart=_APART,
        ),
        QuantizationScheme(
            "int16",
            "int16 activations and int8 weights, a scale for each output channel",
            rules=(*_wide_rules(_rules(_WEIGHT, device), device), *([_rule(*_APART, when=apart)] if apart else ())),
            qat=True,
            takes_apart=() if apart else _APART,
        ),
    )
