"""What the backend takes: operator -> constraints. Each constraint says in words why it refuses a node, or None.

This is the one place where operators are checked; the lowerings rely on it. Vela has no way back: what is taken must
compile, for every accelerator of the target's family. The U85 can do what the U55 and the U65 cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch

from delegatekit_api import (
    Call,
    Constraint,
    OperatorSupport,
    ProgramView,
    SupportTable,
    Verdict,
    argument,
    check_left_out,
    dynamic_operand,
    leavable_names,
    operator_name,
    per_axis,
)
from delegatekit_api.quantization import DEQUANTIZE, QUANTIZE, quantization_of

from . import limits
from .ir.border import border_reason
from .ir.units import FUNCTION, REQUANTIZE, SELECTION, SMOOTH_ONLY, SOFTMAX, TRUTHS, Unit, Units, activation_obstacle
from .operators import EMITTERS, POINTWISE, WIDE_FUNCTIONS
from .operators.softmax import NOTHING
from .targets import CHOICES, COMPARISONS, COMPUTED_MASKS, LOOK_UPS, RESIZES, TARGETS, WIDE_PRODUCTS, Target

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from .options import EthosUOptions


def _unquantized(node: Node) -> str:
    """Why an operator of the table is in no unit."""
    value = node.meta["val"]
    dtype = (value[0] if isinstance(value, list | tuple) else value).dtype
    kind = str(dtype).removeprefix("torch.")
    if dtype.is_floating_point or dtype.is_complex:
        return f"computes on numbers in {kind}, and the NPU on integers: quantize the model"
    return f"computes on {kind} without scale and zero point: the NPU takes what lies between dequantize and quantize"


# -- constraints of every operator -----------------------------------------------------------------------------------


def static_sizes(node: Node, program: ProgramView) -> str | None:
    """No size changes from call to call."""
    found = dynamic_operand(node)
    return None if found is None else f"{found} has a size that changes from call to call: the NPU wants them fixed"


def few_axes(node: Node, program: ProgramView) -> str | None:
    """At most 6 axes, each of 1 to 65536 elements."""
    for item in (*node.all_input_nodes, node):
        reason = limits.rank_obstacle(_shape(item))
        if reason is not None:
            return f"{item.name}: {reason}"
    return None


def integer_operands(node: Node, program: ProgramView) -> str | None:
    """Operands and result are int8, or all int16 with zero points of 0; one scale each (weights: int8, per channel)."""
    fixed = _CONSTANT_OPERANDS.get(operator_name(node), ())
    own = [argument(node, name) for name in fixed]
    for item in node.all_input_nodes:
        if item in own or item.meta["val"].dtype is torch.bool:
            continue
        if operator_name(node) == SELECTION and program.is_constant(item):
            continue
        if operator_name(item) not in DEQUANTIZE:
            return f"its operand {item.name} is not quantized"
        reason = activation_obstacle(quantization_of(item, program))
        if reason is not None:
            return f"{item.name} is {reason}"
    return None


#: Operands that have constraints of their own.
_CONSTANT_OPERANDS: Final = {
    "aten.linear.default": ("weight", "bias"),
    "aten.convolution.default": ("weight", "bias"),
    "aten.addmm.default": ("mat2", "self"),
    "aten.embedding.default": ("weight", "indices"),
    "aten.index_select.default": ("index",),
    "aten.layer_norm.default": ("weight", "bias"),
    "aten.rms_norm.default": ("weight",),
    "aten.group_norm.default": ("weight", "bias"),
    "aten.instance_norm.default": ("weight", "bias"),
}


# -- constraints of some ---------------------------------------------------------------------------------------------


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def constant_weight(node: Node, program: ProgramView) -> str | None:
    """The weight is constant, int8, symmetric, with a scale for each output channel or one; the bias is constant."""
    weight, bias = (argument(node, name) for name in _CONSTANT_OPERANDS[operator_name(node)])
    if operator_name(weight) not in DEQUANTIZE or not program.is_constant(weight.args[0]):
        return f"its weight {weight.name} is not constant integers"
    if len(_shape(weight)) < 2:
        return f"its weight {weight.name} is a vector"
    found = quantization_of(weight, program)
    if found is None or found.dtype is not torch.int8 or not found.is_symmetric or found.group is not None:
        return f"its weight {weight.name} is not int8 with zero points of 0, and a scale for each channel or one"
    transposed = operator_name(node) == "aten.convolution.default" and argument(node, "transposed")
    if transposed and argument(node, "groups") > 1 and found.axis is not None:
        return "a grouped transposed convolution has a scale for each channel of its weight"
    reversed_axes = transposed or operator_name(node) == "aten.addmm.default"
    if found.axis not in (None, 1 if reversed_axes else 0):
        return f"its weight {weight.name} has scales along axis {found.axis}"
    integers = operator_name(bias) in DEQUANTIZE and program.is_constant(bias.args[0]) if bias is not None else True
    return None if integers or program.is_constant(bias) else f"its bias {bias.name} is computed"


def plain_product(node: Node, program: ProgramView) -> str | None:
    """alpha and beta are 1; the bias has a number for each column, or one."""
    factors = {name: node.kwargs.get(name, 1) for name in ("alpha", "beta")}
    if set(factors.values()) != {1}:
        return f"alpha and beta are {factors['alpha']} and {factors['beta']}: only 1 is taken"
    bias, columns = _shape(argument(node, "self")), _shape(node)[-1]
    return None if limits.count(bias) in (1, columns) else f"a bias of {bias}"


def convolves(node: Node, program: ProgramView) -> str | None:
    """1-d or 2-d; kernels to 64 high and of 4096 elements; transposed: no dilation."""
    shapes = [_shape(item) for item in (argument(node, "input"), argument(node, "weight"), node)]
    stride, dilation = argument(node, "stride"), argument(node, "dilation")
    if argument(node, "transposed"):
        return limits.transposed_obstacle(shapes[1], stride, dilation)
    return limits.convolution_obstacle(shapes[0], shapes[1], shapes[2], stride, dilation, argument(node, "padding"))


def pools_maximum(node: Node, program: ProgramView) -> str | None:
    """Windows to 256 high, no dilation, with a batch axis."""
    axes = 1 if "1d" in operator_name(node) else 2
    kernel, dilation = (per_axis(argument(node, name), axes, 1) for name in ("kernel_size", "dilation"))
    return limits.maximum_obstacle(_shape(argument(node, "self")), kernel, dilation)


def pools_average(node: Node, program: ProgramView) -> str | None:
    """Windows to 64 high and of 4096 elements, with a batch axis."""
    axes = 1 if "1d" in operator_name(node) else 2
    kernel = per_axis(argument(node, "kernel_size"), axes, 1)
    return limits.average_obstacle(_shape(argument(node, "self")), kernel)


def even_windows(node: Node, program: ProgramView) -> str | None:
    """The result's sizes divide the input's; windows to 64 high and of 4096 elements, with a batch axis."""
    axes = 1 if "1d" in operator_name(node) else 2
    return limits.adaptive_obstacle(_shape(argument(node, "self")), _shape(node), axes)


def resizes(mode: str, target: Target) -> Constraint:
    """Constraint of resizing."""

    def check(node: Node, program: ProgramView) -> str | None:
        corners = mode == "bilinear" and bool(argument(node, "align_corners"))
        source = _shape(argument(node, "input"))
        factors, lacks = argument(node, "scale_factors"), target.lacks(RESIZES[mode])
        return limits.resize_obstacle(source, _shape(node), mode, corners, factors, lacks)

    narrow = {"nearest": "Larger by whole factors.", "bilinear": "2, 4 or 8 times as large; corners are not aligned."}
    check.__doc__ = narrow[mode] if target.lacks("") else "To a 16th at least; steps of at least a 1024th of a pixel."
    return check


def short_rows(node: Node, program: ProgramView) -> str | None:
    """Over 2 to 32768 elements."""
    return limits.softmax_obstacle(_shape(argument(node, "self")), argument(node, "dim"))


def chooses(target: Target) -> Constraint:
    """Between numbers and truth values the U85 chooses; the others hide numbers from a softmax."""
    reasons = target.lacks(CHOICES), target.lacks(COMPUTED_MASKS)

    def check(node: Node, program: ProgramView) -> str | None:
        readers = list(node.users)
        if len(readers) == 1 and operator_name(readers[0]) == SOFTMAX:
            fixed = program.is_constant(argument(node, "condition"))
            return (None if fixed else reasons[1]) or hides_scores(node, program)
        if reasons[0] is not None:
            return reasons[0]
        return common_rank(node, program)

    softmax = "front of a softmax{}: where a {}mask is set, a constant that is nothing beside the others."
    check.__doc__ = (
        f"In {softmax.format(' only', 'constant ')}"
        if reasons[0]
        else f"Numbers, of at most 4 axes if operands have several shapes; in {softmax.format('', '')}"
    )
    return check


def near_scores(node: Node, program: ProgramView) -> str | None:
    """Scores of a range of at most 8192."""
    found = quantization_of(argument(node, "self"), program)
    if found is None or isinstance(found.scale, torch.Tensor):
        return None
    span = (found.maximum - found.minimum) * found.scale
    most = limits.MAX_SCORES
    return None if span <= most else f"a log_softmax of scores over a range of {span:.4g}: {most} is the most"


def hides_scores(node: Node, program: ProgramView) -> str | None:
    """What is filled in is a constant that is nothing beside the others."""
    (softmax,) = node.users
    fill, scores = argument(node, "self"), argument(node, "other")
    data = program.constant(fill)
    if data is None or data.numel() != 1:
        return "what it hides numbers by is computed"
    if operator_name(scores) not in DEQUANTIZE:
        return "what it hides is not quantized"
    found = quantization_of(scores, program)
    if found is not None and not float(data) <= (found.minimum - found.zero_point) * found.scale - NOTHING:
        return f"{float(data)} is not so small that a softmax leaves it out"
    obstacle = limits.masked_obstacle(_shape(node), _shape(scores))
    return obstacle or limits.softmax_obstacle(_shape(node), argument(softmax, "dim"))


def needs(target: Target, what: str) -> tuple[Constraint, ...]:
    """The constraint of what the U85 alone does; none for a U85. `what` says it in words."""
    reason = target.lacks(what)

    def check(node: Node, program: ProgramView) -> str | None:
        """Not at all."""
        return reason

    return () if reason is None else (check,)


def common_rank(node: Node, program: ProgramView) -> str | None:
    """Quantized numbers, or truth values; at most 4 axes if operands have several shapes."""
    shapes = [_shape(item) for item in node.all_input_nodes if not program.is_constant(item)]
    return limits.common_rank_obstacle(shapes, _shape(node))


def narrow_indices(node: Node, program: ProgramView) -> str | None:
    """Indices are int32, or constant."""
    indices = argument(node, _CONSTANT_OPERANDS[operator_name(node)][-1])
    if program.is_constant(indices) or indices.meta["val"].dtype is torch.int32:
        return None
    return limits.indices_obstacle(indices.meta["val"].dtype)


def constant_table(node: Node, program: ProgramView) -> str | None:
    """The table is constant, int8 or int16 with one scale."""
    weight = argument(node, "weight")
    if operator_name(weight) not in DEQUANTIZE or not program.is_constant(weight.args[0]):
        return f"its table {weight.name} is not constant integers"
    reason = activation_obstacle(quantization_of(weight, program))
    return None if reason is None else f"its table {weight.name} is {reason}"


def constant_parameters(node: Node, program: ProgramView) -> str | None:
    """Weight and bias, if there are any, are constant."""
    for item in (argument(node, name) for name in _CONSTANT_OPERANDS[operator_name(node)]):
        if item is not None and not program.is_constant(item.args[0] if operator_name(item) in DEQUANTIZE else item):
            return f"its parameter {item.name} is computed"
    return None


def normalizes_rows(node: Node, program: ProgramView) -> str | None:
    """Over 2 to 16384 elements (without a mean 4096), at most 65536 times."""
    shape, sizes = _shape(argument(node, "input")), argument(node, "normalized_shape")
    centred = operator_name(node) != "aten.rms_norm.default"
    return limits.norm_obstacle(shape, limits.count(shape[: len(shape) - len(sizes)]), centred=centred)


def normalizes_groups(node: Node, program: ProgramView) -> str | None:
    """Over 2 to 16384 elements, at most 65536 times."""
    shape = _shape(argument(node, "input"))
    return limits.norm_obstacle(shape, shape[0] * argument(node, "num_groups"))


def normalizes_channels(node: Node, program: ProgramView) -> str | None:
    """Over 2 to 16384 elements, at most 65536 times; by the input's own mean and variance."""
    shape = _shape(argument(node, "input"))
    if not argument(node, "use_input_stats"):
        return "normalizes by recorded statistics"
    return limits.norm_obstacle(shape, limits.count(shape[:2]))


def equal_stacks(node: Node, program: ProgramView) -> str | None:
    """Matrices, or stacks of as many."""
    left, right = (_shape(item) for item in node.args[:2])
    return limits.matrices_obstacle(left, right)


def _is_wide(node: Node, program: ProgramView) -> bool:
    """Whether an operand is int16."""
    found = (quantization_of(item, program) for item in node.all_input_nodes)
    return any(item is not None and item.dtype is torch.int16 for item in found)


def eight_bits(node: Node, program: ProgramView) -> str | None:
    """int8, not int16."""
    return SMOOTH_ONLY if _is_wide(node, program) else None


def narrow(target: Target, what: str) -> tuple[Constraint, ...]:
    """The constraint of what the U85 alone does with int16; none for a U85. `what` says it in words."""
    reason = target.lacks(what)

    def check(node: Node, program: ProgramView) -> str | None:
        """int8, not int16."""
        return reason if _is_wide(node, program) else None

    return () if reason is None else (check,)


def constant_divisor(node: Node, program: ProgramView) -> str | None:
    """In int16 divisors are constants, and not 0."""
    if eight_bits(node, program) is None:
        return None
    data = program.constant(_integers(argument(node, "other")))
    return (
        None
        if data is not None and bool(data.all())
        else "its divisor is computed: int16 has tables of smooth functions only"
    )


def _integers(dequantize: Node) -> Node:
    found: Node = dequantize.args[0]  # type: ignore[assignment]
    return found


def even_divisors(node: Node, program: ProgramView) -> str | None:
    """In int16 all windows have one divisor: padding counts, sizes are not rounded up."""
    if eight_bits(node, program) is None:
        return None
    return limits.divisor_obstacle(
        argument(node, "padding"), argument(node, "count_include_pad"), argument(node, "ceil_mode")
    )


def few_summands(node: Node, program: ProgramView) -> str | None:
    """At most 65536 elements are reduced."""
    return limits.sum_obstacle(_shape(argument(node, "self")), argument(node, "dim"))


def small_axes(node: Node, program: ProgramView) -> str | None:
    """Over axes of at most 256 elements, with at most 65536 results."""
    return limits.extreme_obstacle(_shape(argument(node, "self")), argument(node, "dim"))


def plain_sum(node: Node, program: ProgramView) -> str | None:
    """alpha is 1."""
    alpha = node.kwargs.get("alpha", 1)
    return None if alpha == 1 else f"alpha = {alpha}: only 1 is taken"


def slope_per_channel(node: Node, program: ProgramView) -> str | None:
    """One constant slope, or one for each channel."""
    weight = argument(node, "weight")
    if not program.is_constant(weight.args[0] if operator_name(weight) in DEQUANTIZE else weight):
        return f"its slopes {weight.name} are computed"
    slopes, shape = limits.count(_shape(weight)), _shape(argument(node, "self"))
    if slopes == 1 or (len(shape) > 1 and slopes == shape[1]):
        return None
    return f"{slopes} slopes for an input of shape {shape}"


def single_values(node: Node, program: ProgramView) -> str | None:
    """A function of one quantized tensor, number by number; several of these in a row are one table."""
    if operator_name(node) in WIDE_FUNCTIONS and eight_bits(node, program) is not None:
        return None
    return "its operands are not one quantized tensor and numbers, or of int16 and not smooth"


# -- the table -------------------------------------------------------------------------------------------------------


def _row(
    operators: str, *constraints: Constraint, keep: bool = False, passenger: bool = False
) -> list[OperatorSupport]:
    return [OperatorSupport(f"aten.{name}", constraints, keep, passenger) for name in operators.split()]


#: Functions that the core would otherwise take apart.
_WHOLE: Final = frozenset(
    f"aten.{name}.default"
    for name in (
        *("silu", "gelu", "hardswish", "hardsigmoid", "mish", "softplus", "log_sigmoid", "elu", "celu", "leaky_relu"),
        *("threshold", "hardshrink", "softshrink", "square", "hardtanh", "clamp"),
    )
)


@lru_cache(maxsize=len(TARGETS))
def support_table(target: str) -> SupportTable:
    """The operators that an accelerator takes."""
    device = TARGETS[target]
    products, comparisons = narrow(device, WIDE_PRODUCTS), needs(device, COMPARISONS) or (common_rank,)
    rows = [
        *_row("linear.default", constant_weight, keep=True),
        *_row("addmm.default", constant_weight, plain_product, keep=True),
        *_row("convolution.default", constant_weight, convolves),
        *_row("mm.default bmm.default", equal_stacks, *products),
        *_row("matmul.default", equal_stacks, *products, keep=True),
        *_row("add.Tensor sub.Tensor", plain_sum),
        *_row("mul.Tensor maximum.default minimum.default"),
        *_row("div.Tensor", constant_divisor),
        *_row("prelu.default", slope_per_channel, keep=True),
        *_row("glu.default", eight_bits, keep=True),
        *_row("max_pool1d.default max_pool2d.default", pools_maximum, keep=True),
        *_row("avg_pool1d.default", pools_average, even_divisors, keep=True),
        *_row("avg_pool2d.default", pools_average, even_divisors),
        *_row("adaptive_avg_pool1d.default", even_windows, keep=True),
        *_row("_adaptive_avg_pool2d.default", even_windows),
        *_row("mean.dim sum.dim_IntList", few_summands),
        *_row("amax.default amin.default", small_axes),
        *_row("_softmax.default", short_rows),
        *_row("_log_softmax.default", short_rows, near_scores),
        *_row("where.self", chooses(device)),
        *_row(" ".join(name.removeprefix("aten.") for name in sorted(TRUTHS)), *comparisons),
        *_row("embedding.default", *(needs(device, LOOK_UPS) or (narrow_indices, constant_table))),
        *_row("index_select.default", *(needs(device, LOOK_UPS) or (narrow_indices,))),
        *_row("layer_norm.default rms_norm.default", constant_parameters, normalizes_rows, keep=True),
        *_row("group_norm.default", constant_parameters, normalizes_groups, keep=True),
        *_row("instance_norm.default", constant_parameters, normalizes_channels, keep=True),
        *_row("upsample_nearest2d.vec", resizes("nearest", device), keep=True),
        *_row("upsample_bilinear2d.vec", resizes("bilinear", device), keep=True),
        *_row("view_copy.default unsqueeze_copy.default squeeze_copy.dims", passenger=True),
        *_row("permute_copy.default expand_copy.default repeat.default flip.default", passenger=True),
        *_row("slice_copy.Tensor select_copy.int cat.default constant_pad_nd.default", passenger=True),
        *_row("pixel_shuffle.default pixel_unshuffle.default stack.default roll.default", keep=True, passenger=True),
    ]
    named = {row.operator for row in rows}
    rows += [OperatorSupport(name, (single_values,), keep=name in _WHOLE) for name in sorted(POINTWISE - named)]
    rows += [OperatorSupport(name, keep=True, passenger=True) for name in sorted(QUANTIZE | DEQUANTIZE)]
    return SupportTable(rows, common=(static_sizes, few_axes, integer_operands))


#: The operators that every accelerator takes: those of the U55 and the U65. And those of the U85.
TABLE: Final = support_table("ethos-u55-128")
TABLE_U85: Final = support_table("ethos-u85-256")


# -- the partitioner -------------------------------------------------------------------------------------------------


class EthosUPartitioner:
    """Takes whole units: an operator with the dequantizes before and the quantizes behind it.

    Raises OptionError for an unknown operator in `leave_out`.
    """

    def __init__(self, options: EthosUOptions) -> None:
        self._left_out: Final = frozenset(options.leave_out)
        self._table: Final = support_table(options.target)
        check_left_out(self._left_out, self._table, "ethosu")
        self._plans: WeakKeyDictionary[Graph, Units] = WeakKeyDictionary()
        #: Why an operator was refused when it was first seen, by method, debug handle and name: when others have been
        #: taken apart, it looks another. Without the name it is for pieces of an operator that was kept whole.
        self._reasons: dict[tuple[str, Any, str], str] = {}

    def keep_operators(self) -> Collection[str]:
        """The table's rows with `keep`."""
        return {name for name, row in self._table.items() if row.keep}

    def check(self, call: Call) -> Verdict:
        """Whether the node is part of a unit that the NPU takes."""
        node, program = call.node, call.program
        units = self._units(program)
        found = units.of(node)
        if found:
            members = dict.fromkeys(item for unit in found for item in unit.nodes)
            return Verdict.yes(passenger=all(map(self._is_passenger, found)), group=members)
        name = call.operator
        method, handle = program.method, node.meta.get("debug_handle")
        if node in units.reasons:
            return Verdict.no(self._reasons[method, handle, name])
        if name in DEQUANTIZE:
            return Verdict.no("its numbers are for what the NPU does not take")
        at_border = border_reason(node)
        if at_border is not None:
            return Verdict.no(at_border)
        whole = self._reasons.get((method, handle, name)) or self._reasons.get((method, handle, ""))
        if whole is not None:
            return Verdict.no(whole)
        if name not in self._table:
            return Verdict.no(f"{name} is not in the backend's operator table")
        return Verdict.no(_unquantized(node))

    def propose(self, program: ProgramView) -> None:
        """Core groups."""
        return

    def _is_passenger(self, unit: Unit) -> bool:
        return unit.kind == REQUANTIZE or (unit.kind != FUNCTION and self._table[unit.kind].passenger)

    def _units(self, program: ProgramView) -> Units:
        found = self._plans.get(program.graph)
        if found is None:
            found = self._plans[program.graph] = Units(program, EMITTERS.keys(), POINTWISE)
            found.settle(self._obstacle(program))
            for node, reason in found.reasons.items():
                for name in (operator_name(node), ""):
                    self._reasons.setdefault((program.method, node.meta.get("debug_handle"), name), reason)
        return found

    def _obstacle(self, program: ProgramView) -> Callable[[Unit], str | None]:
        def obstacle(unit: Unit) -> str | None:
            for node in unit.inner:
                if self._left_out & leavable_names(operator_name(node)):
                    return "left out by the option leave_out"
            if unit.kind != REQUANTIZE:
                reason = _mixed(unit)
                if reason is not None:
                    return reason
            checks: tuple[Constraint, ...] = (static_sizes, few_axes)
            if unit.kind not in (FUNCTION, REQUANTIZE):
                checks = (*self._table.common, *self._table[unit.kind].constraints)
            for check in checks:
                reason = check(unit.anchor, program)
                if reason is not None:
                    return reason
            if unit.kind == REQUANTIZE:
                return activation_obstacle(quantization_of(unit.anchor, program))
            return None

        return obstacle


def _mixed(unit: Unit) -> str | None:
    """Why the types of a unit's activations do not go together."""
    fixed = [argument(unit.anchor, name) for name in _CONSTANT_OPERANDS.get(unit.kind, ())]
    found = {argument(item, "dtype") for item in unit.results}
    found |= {item.args[0].meta["val"].dtype for item in unit.operands if item not in fixed}  # type: ignore[union-attr]
    if len(found) < 2:
        return None
    kinds = sorted(str(dtype).removeprefix("torch.") for dtype in found)
    return f"operands and result are {' and '.join(kinds)}: the NPU wants one type"
