"""Quantization schemes that a backend declares as a table; the core turns them into annotations.

A scheme is a list of rules. A rule names operators and says how their operands and results are quantized. Nothing here
knows torch or torchao: dtypes and operators are names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ._program import Call

#: Integer types of quantized tensors, with the range of each.
INTEGER_RANGES: Final = {
    "int4": (-8, 7),
    "uint4": (0, 15),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
}

#: The types in which a file may hold scales.
SCALE_DTYPES: Final = ("float32", "float16", "bfloat16")

#: The smallest number of float16.
_LEAST_FLOAT16: Final = 2.0**-24

#: The estimators of a tensor's range from the values seen: their minimum and maximum, a moving average of these, or
#: the cut of their histogram with the least squared error.
OBSERVERS: Final = ("minmax", "moving-average", "histogram")

#: Operators that only move values (a rule with `shares` is right for them on most hardware). Pads count only with 0.
MOVING_OPERATORS: Final = (
    "view",
    "reshape",
    "_unsafe_view",
    "flatten",
    "unflatten",
    "permute",
    "transpose",
    "t",
    "numpy_T",  # x.T
    "mT",
    "matrix_H",
    "adjoint",
    "swapaxes",
    "swapdims",
    "movedim",
    "moveaxis",
    "squeeze",
    "unsqueeze",
    "slice",
    "narrow",
    "select",
    "split",
    "split_with_sizes",
    "chunk",
    "unbind",
    "expand",
    "expand_as",
    "broadcast_to",
    "repeat",
    "pad",
    "constant_pad_nd",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "flip",
    "clone",
    "contiguous",
    "detach",
    "alias",
    "dropout",
)

#: The reason why a scheme, by choice, does not quantize a call of the exported graph by a rule; None if it does.
Decline = Callable[["Call"], "str | None"]

#: Finds the best numbers for a table: `find(values, entries)` of a tensor of floating-point numbers gives a tensor of
#: (entries,) numbers in float32. Since API version 2.5.
FindTable = Callable[[Any, int], Any]

_OPERATOR_NAME = re.compile(r"\w+(\.\w+){0,2}")


@dataclass(frozen=True)
class Granularity:
    """The unit that has a scale or table of its own: the "tensor", a "channel", several "channels", a "group" of a
    channel, a "token" or "sample".

    `axis` is a channel's dimension; None means the operator's output channels (dimension 0 of a linear's or a
    convolution's weight, 1 of a transposed convolution's). `group` is the number of values of a group, along the input
    channels, or of neighboring output channels that share a table. A token is all input channels at one place: a row of
    a linear's input (..., C), a pixel of a convolution's input (N, C, ...). A sample is all with the same index along
    the first dimension. Raises ValueError for values that do not go together.
    """

    kind: str = "tensor"
    axis: int | None = None
    group: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("tensor", "channel", "channels", "group", "token", "sample"):
            raise ValueError(f"granularity {self.kind!r} is not tensor, channel, channels, group, token or sample")
        if self.axis is not None and (self.kind != "channel" or self.axis < 0):
            raise ValueError(f"axis {self.axis}: only channels have an axis, counted from 0")
        if (self.group is not None) != (self.kind in ("group", "channels")):
            raise ValueError("`group` is required for, and only valid with, kind='group' and kind='channels'")
        if self.group is not None and self.group < 1:
            raise ValueError(f"a group of {self.group} {'values' if self.kind == 'group' else 'channels'}")

    def __str__(self) -> str:
        if self.kind == "group":
            return f"per group of {self.group}"
        if self.kind == "channels":
            return f"per {self.group} channels"
        return f"per {self.kind}" + (f" (axis {self.axis})" if self.axis is not None else "")


PER_TENSOR: Final = Granularity()
PER_CHANNEL: Final = Granularity("channel")
PER_TOKEN: Final = Granularity("token")
PER_SAMPLE: Final = Granularity("sample")


def per_group(size: int) -> Granularity:
    """Groups of `size` values along the input channels of a weight."""
    return Granularity("group", group=size)


def per_channels(count: int) -> Granularity:
    """As many neighboring output channels at a time, for tables. Since API version 2.5."""
    return Granularity("channels", group=count)


@dataclass(frozen=True)
class TensorQuantization:
    """The quantization of a tensor: real = scale * (integer - zero point), with the integer within `low` and `high`.

    `dtype` is a key of `INTEGER_RANGES`, whose range `low` and `high` may narrow. `symmetric` fixes the zero point to
    the middle of the dtype (0 for signed types). `dynamic` tensors get their scale from their values at run time,
    others from calibration, by an observer of the kind `observer`; no scale is smaller than `eps`. `scale` and
    `zero_point`, given both, are fixed by the hardware (outputs of sigmoid: 1/256 and -128) and nothing is calibrated.

    `scale_dtype` is the type in which the backend holds a weight's scales: they are rounded to it before the weight is
    rounded with them, so that eager has the scales of the file. For weights of dynamic and weight-only schemes. Since
    API version 2.4.

    With `table` there is no scale: the integers, from 0 to `high`, are places in a table of numbers, or in one for
    each unit of the granularity ("tensor" or "channels"). The function finds the numbers, which then are rounded to
    `scale_dtype`. For the weights of weight-only schemes. Since API version 2.5.

    Raises ValueError for values that do not go together.
    """

    dtype: str = "int8"
    low: int | None = None
    high: int | None = None
    symmetric: bool = False
    granularity: Granularity = PER_TENSOR
    dynamic: bool = False
    observer: str = "minmax"
    eps: float = 2.0**-23
    scale: float | None = None
    zero_point: int | None = None
    scale_dtype: str = "float32"
    table: FindTable | None = None

    def __post_init__(self) -> None:
        if self.dtype not in INTEGER_RANGES:
            raise ValueError(f"dtype {self.dtype!r} is not one of {', '.join(INTEGER_RANGES)}")
        lowest, highest = INTEGER_RANGES[self.dtype]
        low, high = self.range
        if not lowest <= low < high <= highest:
            raise ValueError(f"range {low} to {high} is not within {self.dtype}'s {lowest} to {highest}")
        if self.observer not in OBSERVERS:
            raise ValueError(f"observer {self.observer!r} is not one of {', '.join(OBSERVERS)}")
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise ValueError(f"eps {self.eps} is not a positive number")
        kind = self.granularity.kind
        if kind in ("token", "sample") and not self.dynamic:
            raise ValueError(f"scales {self.granularity} are dynamic: the number of {kind}s is known in the call only")
        if self.dynamic and kind not in ("tensor", "token", "sample"):
            raise ValueError(f"dynamic scales are per tensor, token or sample, not {self.granularity}")
        if self.dynamic and self.dtype not in ("int8", "uint8"):
            raise ValueError(f"dynamic tensors are int8 or uint8, not {self.dtype}")
        if kind != "tensor" and self.observer == "histogram":
            raise ValueError("observer 'histogram' needs one scale for the whole tensor")
        if self.scale_dtype not in SCALE_DTYPES:
            raise ValueError(f"scale_dtype {self.scale_dtype!r} is not one of {', '.join(SCALE_DTYPES)}")
        if self.scale_dtype == "float16" and self.eps < _LEAST_FLOAT16:
            raise ValueError(f"eps {self.eps} is 0 in float16, the type of the scales")
        self._check_table(low, high)
        self._check_fixed(low, high)

    def _check_table(self, low: int, high: int) -> None:
        if self.table is None:
            if self.granularity.kind == "channels":
                raise ValueError("several channels share a table, not a scale")
            return
        if low != 0 or high & (high + 1):
            raise ValueError(f"places in a table are 0 to 2**bits - 1, not {low} to {high}")
        if self.granularity.kind not in ("tensor", "channels"):
            raise ValueError(f"tables are per tensor or per several channels, not {self.granularity}")
        if self.symmetric or self.dynamic or self.scale is not None:
            raise ValueError("a table has no scale and no zero point")

    def _check_fixed(self, low: int, high: int) -> None:
        if (self.scale is None) != (self.zero_point is None):
            raise ValueError("scale and zero_point must be given together")
        if self.scale is None or self.zero_point is None:
            return
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale {self.scale} is not a positive number")
        if not low <= self.zero_point <= high:
            raise ValueError(f"zero point {self.zero_point} is not within {low} to {high}")
        if self.dynamic or self.granularity.kind != "tensor":
            raise ValueError("a fixed scale must be static and per tensor")

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        lowest, highest = INTEGER_RANGES[self.dtype]
        return lowest if self.low is None else self.low, highest if self.high is None else self.high

    def __str__(self) -> str:
        if self.table is not None:
            return f"tables of {self.range[1] + 1} {self.scale_dtype} numbers {self.granularity}"
        words = [self.dtype, "symmetric" if self.symmetric else "affine", str(self.granularity)]
        if self.dynamic:
            words.append("dynamic")
        if self.scale is not None:
            words.append(f"fixed {self.scale:g}, {self.zero_point}")
        if self.scale_dtype != "float32":
            words.append(f"with {self.scale_dtype} scales")
        return " ".join(words)


@dataclass(frozen=True)
class QuantizationRule:
    """The quantization of some operators.

    `operators` are names as in the exported graph: "linear", "conv2d", "add", or with the overload, "aten.mean.dim"; an
    operator's in-place form goes with it. `input` is for each tensor that is computed, `weight` for the constant weight
    of a linear, convolution, embedding or product of matrices, `bias` None (stays float: the backend converts it) or
    int32 (scale of the input times scale of the weight), `output` for the result; None is float. The constant weight
    and bias of a layer, group, instance or RMS norm stay float.

    `fused` are activations ("relu", "hardtanh", ...) that the backend fuses with the operator: nothing is
    quantized in between, and `output` is for the result of the last. Batch norm after a convolution or linear is
    folded first.

    `shares`: all inputs and the output have the same parameters (cat, pools, views). Such operators take part only
    where one of their inputs is quantized already. `follows` asks this of other operators, too; for them an input of
    the program counts as well. `numbers`: operands that are Python numbers become constants, quantized as inputs.

    `declines` are for what the backend can do and the scheme prefers to avoid, mostly for accuracy: functions of
    the exported call, each of which returns the reason, or None. What the backend cannot do is not repeated here: its
    partitioner is asked about each layer as if it were quantized, and where it refuses, the next rule is tried.

    Raises ValueError for values that do not go together.
    """

    operators: tuple[str, ...]
    input: TensorQuantization | None = None
    weight: TensorQuantization | None = None
    bias: TensorQuantization | None = None
    output: TensorQuantization | None = None
    fused: tuple[str, ...] = ()
    shares: bool = False
    follows: bool = False
    numbers: bool = False
    declines: tuple[Decline, ...] = ()

    def __post_init__(self) -> None:
        for what, names in (("operators", self.operators), ("fused", self.fused)):
            if isinstance(names, str):
                raise ValueError(f"{what} is the string {names!r}: write a tuple of names")
            for name in names:
                if not _OPERATOR_NAME.fullmatch(name):
                    raise ValueError(f"{name!r} is not an operator's name: 'linear' or 'aten.linear.default'")
        if not self.operators:
            raise ValueError("a rule without operators")
        where = f"rule for {self.operators[0]}"
        if self.shares:
            if any((self.input, self.weight, self.bias, self.output, self.fused, self.numbers)):
                raise ValueError(f"{where}: a rule with shares=True must not declare parameters of its own")
            return
        if not (self.input or self.weight or self.output):
            raise ValueError(f"{where}: nothing is quantized: give input, weight, output or shares=True")
        if self.fused and not (self.output or (self.input and self.input.dynamic)):
            raise ValueError(f"{where}: fused activations need an output that is quantized, or a dynamic input")
        if self.weight is not None and self.weight.dynamic:
            raise ValueError(f"{where}: weights are constants, and not dynamic")
        if self.output is not None and (self.output.dynamic or self.output.granularity.kind != "tensor"):
            raise ValueError(f"{where}: outputs are static, with one scale for the tensor")
        if self.input is not None and self.input.granularity.kind in ("channel", "group"):
            raise ValueError(f"{where}: inputs have a scale per tensor, token or sample")
        for given in (self.input, self.bias, self.output):
            if given is not None and given.table is not None:
                raise ValueError(f"{where}: tables are for weights")
            if given is not None and given.scale_dtype != "float32":
                raise ValueError(f"{where}: {given.scale_dtype} scales are for weights")
        if self.bias is not None:
            self._check_bias(where)

    def _check_bias(self, where: str) -> None:
        if self.bias is None or self.bias.dtype != "int32" or not self.bias.symmetric:
            raise ValueError(f"{where}: a quantized bias is int32 and symmetric")
        if self.input is None or self.weight is None or self.input.dynamic:
            raise ValueError(f"{where}: the scale of a bias is that of a static input times that of a weight")
        if self.weight.granularity.kind == "group":
            raise ValueError(f"{where}: a bias has no groups")


@dataclass(frozen=True)
class QuantizationScheme:
    """One way to quantize for a backend.

    `kind` is "static" (scales of activations from calibration), "dynamic" (scales of activations at run time) or
    "weight-only". Of the rules that name an operator, the first applies that does not decline and whose layer the
    backend takes. Without rules the plugin brings a Quantizer of its own by the hook `create_quantizer`. `qat` offers
    training with quantization.

    `takes_apart` names operators whose parts are quantized, each by the rules for it, instead of the whole: for
    "scaled_dot_product_attention" the products (`matmul`), the scaling (`mul` by a number) and the `softmax`. They are
    taken apart before layers are found, unless the user keeps them in float. Attention with a constant mask is if a
    rule for `masked_fill` has `softmax` fused to it; with a mask that is computed it stays whole.

    `relative_error` is the largest error of a layer's results, relative to the largest of them, before
    they are rounded to steps: 0 for a device that adds integers exactly. Conformance allows this much.

    Raises ValueError where rules and kind contradict each other.
    """

    name: str
    summary: str
    kind: str = "static"
    rules: tuple[QuantizationRule, ...] = ()
    qat: bool = False
    takes_apart: tuple[str, ...] = ()
    relative_error: float = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.+-]+", self.name):
            raise ValueError(f"{self.name!r} is not a name for a scheme: letters, digits, '-', '_', '.' and '+'")
        if self.kind not in ("static", "dynamic", "weight-only"):
            raise ValueError(f"scheme {self.name}: kind {self.kind!r} is not static, dynamic or weight-only")
        if self.qat and self.kind != "static":
            raise ValueError(f"scheme {self.name}: training with quantization is for static schemes")
        if not 0 <= self.relative_error < 1:
            raise ValueError(f"scheme {self.name}: relative_error {self.relative_error} is not from 0 to below 1")
        if isinstance(self.takes_apart, str):
            raise ValueError(f"scheme {self.name}: takes_apart is the string {self.takes_apart!r}: write a tuple")
        if self.takes_apart and not (self.kind == "static" and self.rules):
            raise ValueError(f"scheme {self.name}: operators are taken apart for the rules of static schemes")
        for rule in self.rules:
            where = f"scheme {self.name}, rule for {rule.operators[0]}"
            if self.kind == "static" and rule.input is not None and rule.input.dynamic:
                raise ValueError(f"{where}: a dynamic input in a static scheme")
            if self.kind == "static" and rule.weight is not None and rule.weight.granularity.kind == "group":
                raise ValueError(f"{where}: groups are for dynamic and weight-only schemes")
            if self.kind == "static" and rule.weight is not None and rule.weight.scale_dtype != "float32":
                raise ValueError(f"{where}: {rule.weight.scale_dtype} scales are for dynamic and weight-only schemes")
            if self.kind == "dynamic" and rule.input is not None and not rule.input.dynamic:
                raise ValueError(f"{where}: a static input in a dynamic scheme")
            if self.kind == "weight-only" and (rule.weight is None or rule.input or rule.output):
                raise ValueError(f"{where}: only weights are quantized in a weight-only scheme")
            if self.kind != "weight-only" and rule.weight is not None and rule.weight.table is not None:
                raise ValueError(f"{where}: tables are for weight-only schemes")
            if self.kind != "static" and (rule.shares or rule.output):
                raise ValueError(f"{where}: the scheme has no quantized values between operators")

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators of all rules, each once."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.operators))

    def with_scales(self, dtype: str) -> QuantizationScheme:
        """The same with weights whose scales have this type (`TensorQuantization.scale_dtype`), for backends whose
        options choose it. A static scheme stays as it is.

        >>> rule = QuantizationRule(("linear",), weight=TensorQuantization("int4", symmetric=True))
        >>> QuantizationScheme("int4", "", "weight-only", (rule,)).with_scales("float16").rules[0].weight.scale_dtype
        'float16'
        """
        if self.kind == "static":
            return self
        weights = [rule.weight and replace(rule.weight, scale_dtype=dtype) for rule in self.rules]
        rules = [replace(rule, weight=weight) for rule, weight in zip(self.rules, weights, strict=True)]
        return replace(self, rules=tuple(rules))
