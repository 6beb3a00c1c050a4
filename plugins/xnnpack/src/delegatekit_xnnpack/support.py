"""What the backend takes: operator -> constraints. Each constraint says in words why it refuses a node, or None.

This is the one place where operators are checked; the lowerings rely on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch

from delegatekit_api import (
    Constraint,
    OperatorSupport,
    OptionError,
    ProgramView,
    SupportTable,
    TablePartitioner,
    Verdict,
)

from .arguments import argument, per_axis, rank_of, shape_of
from .graph import MAX_RANK
from .lowering import elementwise, reduction, spatial
from .lowering.shape import index_runs, pad_amounts, selected_indices, slice_bounds

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import XnnpackOptions


# -- constraints of every operator -----------------------------------------------------------------------------------


def float32_tensors(node: Node, program: ProgramView) -> str | None:
    """All tensors are float32 (single numbers known at lowering time are converted)."""
    for operand in (*node.all_input_nodes, node):
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return f"{operand.name} is not one tensor"
        if value.dtype == torch.float32:
            continue
        if program.is_constant(operand) and (_is_number(value) or operand in _index_operands(node)):
            continue
        kind = str(value.dtype).removeprefix("torch.")
        return f"{operand.name} is {kind}: only float32 is taken" + (
            ", float16 and bfloat16 not yet" if kind in ("float16", "bfloat16") else ""
        )
    return None


def _is_number(value: torch.Tensor) -> bool:
    return value.dim() == 0 and not value.is_complex()


def _index_operands(node: Node) -> tuple[Any, ...]:
    """Integer operands that become part of the lowered nodes."""
    return (argument(node, "index"),) if str(node.target) == "aten.index_select.default" else ()


def static_sizes(node: Node, program: ProgramView) -> str | None:
    """No size depends on the input."""
    for operand in (*node.all_input_nodes, node):
        if not all(isinstance(size, int) for size in operand.meta["val"].shape):
            return f"{operand.name} has sizes that change from call to call, {tuple(operand.meta['val'].shape)}"
    return None


def rank_and_elements(node: Node, program: ProgramView) -> str | None:
    """At most 6 axes, and at least one element."""
    for operand in (*node.all_input_nodes, node):
        shape = shape_of(operand)
        if len(shape) > MAX_RANK:
            return f"{operand.name} has {len(shape)} axes: XNNPACK allows {MAX_RANK}"
        if 0 in shape:
            return f"{operand.name} has no elements, {shape}"
    return None


# -- shared constraints ----------------------------------------------------------------------------------------------


def not_scalar(node: Node, program: ProgramView) -> str | None:
    """No operand and no result of rank 0."""
    for operand in (*node.all_input_nodes, node):
        if rank_of(operand) == 0:
            return f"{operand.name} has rank 0: XNNPACK cannot reshape from or to it"
    return None


def constant(*names: str) -> Constraint:
    """Constraint: the named tensor arguments are constants (or absent)."""

    def check(node: Node, program: ProgramView) -> str | None:
        for name in names:
            operand = argument(node, name)
            if operand is not None and not program.is_constant(operand):
                return f"{name} is computed: XNNPACK wants a constant"
        return None

    check.__doc__ = f"{' and '.join(names)} {'are constants' if len(names) > 1 else 'is a constant'}."
    return check


def equals(name: str, *allowed: Any) -> Constraint:
    """Constraint: an argument has one of the allowed values."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        return None if value in allowed else f"{name} = {value}: only {' or '.join(map(str, allowed))} is taken"

    check.__doc__ = f"{name} is {' or '.join(map(str, allowed))}."
    return check


def same_dtype(node: Node, program: ProgramView) -> str | None:
    """No conversion to another dtype."""
    dtype = argument(node, "dtype")
    return None if dtype in (None, torch.float32) else f"dtype = {dtype}: only float32 is taken"


def normal_number(name: str) -> Constraint:
    """Constraint: an argument is 0 or a normal float32 number."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        if isinstance(value, int | float) and (value == 0 or _SMALLEST <= abs(value) <= _LARGEST):
            return None
        return f"{name} = {value} is not a normal float32 number"

    check.__doc__ = f"{name} is 0 or a normal float32 number."
    return check


def float32_number(name: str) -> Constraint:
    """Constraint: an argument is representable in float32, infinity and NaN included."""

    def check(node: Node, program: ProgramView) -> str | None:
        value = argument(node, name)
        return f"{name} = {value} is not a float32 number" if _overflows(value) else None

    check.__doc__ = f"{name} fits float32."
    return check


_LARGEST = torch.finfo(torch.float32).max
_SMALLEST = torch.finfo(torch.float32).tiny


# -- arithmetic and activations --------------------------------------------------------------------------------------


def number_operand(node: Node, program: ProgramView) -> str | None:
    """A number as operand is real and fits float32."""
    for name in ("other", "alpha"):
        if not any(parameter.name == name for parameter in node.target._schema.arguments):  # type: ignore[union-attr]
            continue
        value = argument(node, name)
        if isinstance(value, complex) or (isinstance(value, int | float) and _overflows(value)):
            return f"{name} = {value} is not a float32 number"
    return None


def _overflows(value: float) -> bool:
    return math.isfinite(value) and abs(value) > _LARGEST


def exact_power(node: Node, program: ProgramView) -> str | None:
    """The exponent is one that multiplications, divisions and square roots express."""
    exponent = argument(node, "exponent")
    if isinstance(exponent, int | float) and float(exponent) in elementwise.POWERS:
        return None
    known = ", ".join(f"{power:g}" for power in elementwise.POWERS)
    return f"exponent {exponent}: XNNPACK has no power function, only {known} can be composed"


def ordered_bounds(node: Node, program: ProgramView) -> str | None:
    """The lower bound is not above the upper, and neither is NaN."""
    low, high = elementwise.clamp_bounds(node)
    return None if low <= high else f"bounds {low} and {high} are not an interval"


def plain_elu(node: Node, program: ProgramView) -> str | None:
    """input_scale is 1, and alpha is positive."""
    if argument(node, "input_scale") != 1:
        return f"input_scale = {argument(node, 'input_scale')}: XNNPACK's ELU has none"
    alpha = argument(node, "alpha")
    return None if _SMALLEST <= alpha <= _LARGEST else f"alpha = {alpha}: XNNPACK's ELU wants a positive number"


def slope_per_channel(node: Node, program: ProgramView) -> str | None:
    """One slope, or one for each channel."""
    slopes, shape = math.prod(shape_of(argument(node, "weight"))), shape_of(argument(node, "self"))
    if slopes == 1 or (len(shape) > 1 and slopes == shape[1]):
        return None
    return f"{slopes} slopes for an input of shape {shape}"


# -- shapes ----------------------------------------------------------------------------------------------------------


def few_repeats(node: Node, program: ProgramView) -> str | None:
    """An axis for each repetition fits into 6 axes, and every axis is repeated at least once."""
    tiles = elementwise.repeat_tiles(node)
    axes = sum(2 if tile > 1 else 1 for tile, _ in tiles)
    if axes <= MAX_RANK:
        return None
    return f"{len(tiles)} axes, {axes - len(tiles)} of them repeated, need {axes}: XNNPACK allows {MAX_RANK}"


def sliceable(node: Node, program: ProgramView) -> str | None:
    """The step is 1, or one axis more fits into 6."""
    _, _, step = slice_bounds(node)
    if step == 1 or rank_of(node) < MAX_RANK:
        return None
    return f"step {step} along one of {MAX_RANK} axes: XNNPACK slices with step 1"


def few_runs(node: Node, program: ProgramView) -> str | None:
    """The indices are constants that form at most 25 runs of neighbours."""
    indices = selected_indices(node, program)
    if indices is None:
        return "index is computed: XNNPACK has no gather"
    runs = len(index_runs(indices))
    return None if runs <= _RUN_LIMIT else f"{runs} separate runs of indices: XNNPACK has no gather"


#: Slices that a selection may be cut into: two levels of concatenation.
_RUN_LIMIT = 25


def same_ranks(node: Node, program: ProgramView) -> str | None:
    """All tensors have the same rank."""
    ranks = {rank_of(operand) for operand in argument(node, "tensors")}
    return None if len(ranks) == 1 else f"tensors of ranks {sorted(ranks)} are joined"


def pads_what_is_left(node: Node, program: ProgramView) -> str | None:
    """Negative amounts leave something to pad."""
    for size, (before, after) in zip(shape_of(argument(node, "self")), pad_amounts(node), strict=True):
        if size + min(0, before) + min(0, after) < 1:
            return f"{before} and {after} around {size} elements cut everything off"
    return None


def shuffles_a_batch(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W)."""
    rank = rank_of(argument(node, "self"))
    return None if rank == 4 else f"an input of rank {rank}: only (N, C, H, W) is taken"


# -- matrix products -------------------------------------------------------------------------------------------------


def matrix_weight(node: Node, program: ProgramView) -> str | None:
    """The weight is a matrix (and the bias a vector)."""
    weight, bias = argument(node, "weight"), argument(node, "bias")
    if rank_of(weight) != 2:
        return f"a weight of rank {rank_of(weight)}"
    return None if bias is None or rank_of(bias) == 1 else f"a bias of rank {rank_of(bias)}"


def unscaled(node: Node, program: ProgramView) -> str | None:
    """alpha and beta are 1."""
    alpha, beta = argument(node, "alpha"), argument(node, "beta")
    return None if alpha == beta == 1 else f"alpha = {alpha} and beta = {beta}: only 1 is taken"


def matrix_operands(node: Node, program: ProgramView) -> str | None:
    """The result has rank 1 or more."""
    return "a dot product has a result of rank 0, which XNNPACK cannot reshape to" if rank_of(node) == 0 else None


# -- feature maps ----------------------------------------------------------------------------------------------------


def one_or_two_dimensional(node: Node, program: ProgramView) -> str | None:
    """1-d or 2-d, with a batch axis."""
    rank = rank_of(argument(node, "input"))
    if rank in (3, 4):
        return None
    return f"a convolution over {rank - 2} axes: XNNPACK has one and two"


def convolution_padding(node: Node, program: ProgramView) -> str | None:
    """Padding is not negative, and output_padding is less than the stride."""
    if min(argument(node, "padding"), default=0) < 0:
        return f"negative padding {list(argument(node, 'padding'))}"
    if not argument(node, "transposed"):
        return None
    extra, stride = argument(node, "output_padding"), argument(node, "stride")
    if all(more < step for more, step in zip(extra, stride, strict=True)):
        return None
    return f"output_padding {list(extra)} is not less than stride {list(stride)}"


def pool_shape(spatial: int, *, divides: bool = False) -> Constraint:
    """Constraint: the pooling has `spatial` axes, and an average is divided by the window's own size."""

    def check(node: Node, program: ProgramView) -> str | None:
        rank = rank_of(argument(node, "self"))
        if rank not in (spatial + 1, spatial + 2):
            return f"an input of rank {rank}"
        divisor = argument(node, "divisor_override") if divides else None
        if divisor is None:
            return None
        window = spatial_window(node, spatial)
        if divisor != window or any(per_axis(argument(node, "padding"), spatial)) or argument(node, "ceil_mode"):
            return f"divisor_override = {divisor}: XNNPACK divides by the number of elements in the window"
        return None

    check.__doc__ = f"{spatial} spatial axes" + (", no divisor of its own." if divides else ".")
    return check


def spatial_window(node: Node, axes: int) -> int:
    """Elements of a pooling window."""
    return math.prod(per_axis(argument(node, "kernel_size"), axes))


def divides_evenly(axes: int) -> Constraint:
    """Constraint: the result's sizes divide the input's."""

    def check(node: Node, program: ProgramView) -> str | None:
        before, after = shape_of(argument(node, "self"))[-axes:], shape_of(node)[-axes:]
        if all(old % new == 0 for old, new in zip(before, after, strict=True)):
            return None
        return f"{before} to {after} needs windows of different sizes"

    check.__doc__ = "The result's sizes divide the input's."
    return check


def resize_ratio(node: Node, program: ProgramView) -> str | None:
    """Scale factors, if given, are exactly the ratio of the sizes (or corners are aligned)."""
    if argument(node, "align_corners") or spatial.resize_is_exact(node):
        return None
    return f"scale_factors {argument(node, 'scale_factors')} are not the ratio of the sizes"


def nearest_ratio(node: Node, program: ProgramView) -> str | None:
    """Every row and every column is repeated equally often."""
    before, after = shape_of(argument(node, "input"))[2:], shape_of(node)[2:]
    if spatial.resize_is_exact(node) and spatial.nearest_repeats_evenly(node):
        return None
    return f"nearest neighbours from {before} to {after} are not whole repetitions"


def image(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W)."""
    rank = rank_of(argument(node, "input"))
    return None if rank == 4 else f"an input of rank {rank}"


# -- reductions ------------------------------------------------------------------------------------------------------


def enough_elements(node: Node, program: ProgramView) -> str | None:
    """There are more elements than the correction."""
    count, correction = reduction.reduced_count(node), reduction.variance_correction(node)
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def positive_epsilon(node: Node, program: ProgramView) -> str | None:
    """eps is positive."""
    epsilon = argument(node, "eps")
    return None if epsilon > 0 else f"eps = {epsilon}: a constant input would be divided by zero"


def single_precision_softmax(node: Node, program: ProgramView) -> str | None:
    """No conversion from half precision."""
    return "half_to_float is set" if argument(node, "half_to_float") else None


# -- the table -------------------------------------------------------------------------------------------------------


def _row(
    operators: str, *constraints: Constraint, keep: bool = False, passenger: bool = False
) -> list[OperatorSupport]:
    """Rows of operators that share their constraints."""
    return [OperatorSupport(f"aten.{name}", constraints, keep, passenger) for name in operators.split()]


TABLE = SupportTable(
    [
        *_row("abs.default ceil.default cos.default exp.default floor.default log.default log2.default log10.default"),
        *_row("neg.default reciprocal.default rsqrt.default sigmoid.default sin.default sqrt.default tanh.default"),
        *_row("square.default silu.default hardswish.default hardsigmoid.default gelu.default", keep=True),
        *_row("add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Tensor rsub.Scalar", number_operand),
        *_row("mul.Tensor mul.Scalar div.Tensor div.Scalar", number_operand),
        *_row("maximum.default minimum.default"),
        *_row("pow.Tensor_Scalar", exact_power),
        *_row("relu.default"),
        *_row("hardtanh.default clamp.default", ordered_bounds, keep=True),
        *_row("leaky_relu.default", normal_number("negative_slope"), keep=True),
        *_row("elu.default", plain_elu, normal_number("scale"), keep=True),
        *_row("prelu.default", slope_per_channel, keep=True),
        *_row("glu.default", not_scalar, keep=True),
        *_row("expand_copy.default", not_scalar, passenger=True),
        *_row("repeat.default", not_scalar, few_repeats, passenger=True),
        *_row("view_copy.default unsqueeze_copy.default squeeze_copy.dims", not_scalar, passenger=True),
        *_row("permute_copy.default", passenger=True),
        *_row("slice_copy.Tensor", sliceable, passenger=True),
        *_row("index_select.default", not_scalar, few_runs, passenger=True),
        *_row("select_copy.int", not_scalar, passenger=True),
        *_row("cat.default", not_scalar, same_ranks, passenger=True),
        *_row("constant_pad_nd.default", pads_what_is_left, float32_number("value"), passenger=True),
        *_row("pixel_shuffle.default", shuffles_a_batch, keep=True, passenger=True),
        *_row("linear.default", matrix_weight, keep=True),
        *_row("mm.default bmm.default"),
        *_row("matmul.default", matrix_operands, keep=True),
        *_row("addmm.default baddbmm.default", unscaled),
        *_row("convolution.default", one_or_two_dimensional, constant("weight", "bias"), convolution_padding),
        *_row("max_pool1d.default", pool_shape(1), keep=True),
        *_row("max_pool2d.default", pool_shape(2), keep=True),
        *_row("avg_pool1d.default", pool_shape(1), keep=True),
        *_row("avg_pool2d.default", pool_shape(2, divides=True)),
        *_row("adaptive_avg_pool1d.default", divides_evenly(1), keep=True),
        *_row("_adaptive_avg_pool2d.default", divides_evenly(2)),
        *_row("upsample_bilinear2d.vec", image, resize_ratio, keep=True),
        *_row("upsample_nearest2d.vec", image, nearest_ratio, keep=True),
        *_row("mean.dim sum.dim_IntList", not_scalar, same_dtype),
        *_row("var.correction", not_scalar, enough_elements),
        *_row("amax.default amin.default", not_scalar),
        *_row("_softmax.default", not_scalar, single_precision_softmax),
        *_row("layer_norm.default group_norm.default", positive_epsilon, keep=True),
    ],
    common=(float32_tensors, static_sizes, rank_and_elements),
)

#: Operators whose result for special inputs is not PyTorch's, measured on the runtime of ExecuTorch 1.5.1 for x86.
SPECIAL_VALUES = {
    "aten.amax.default": "maximum pooling passes over NaN",
    "aten.amin.default": "maximum pooling passes over NaN",
    "aten.exp.default": "exp(NaN) is 0",
    "aten.gelu.default": "gelu(inf) is inf, PyTorch says NaN",
    "aten.max_pool1d.default": "maximum pooling passes over NaN",
    "aten.max_pool2d.default": "maximum pooling passes over NaN",
    "aten.maximum.default": "the maximum of NaN and a number is the number",
    "aten.minimum.default": "the minimum of NaN and a number is the number",
    "aten.sigmoid.default": "sigmoid of numbers beyond 7e26 is NaN",
    "aten.silu.default": "sigmoid of numbers beyond 7e26 is NaN",
    "aten.glu.default": "sigmoid of numbers beyond 7e26 is NaN",
    "aten.sin.default": "sin and cos lose accuracy beyond 1e6",
    "aten.cos.default": "sin and cos lose accuracy beyond 1e6",
    "aten.sqrt.default": "sqrt(inf) is NaN",
    "aten.rsqrt.default": "sqrt(inf) is NaN",
}


def _names(operator: str) -> tuple[str, str, str]:
    """The names by which a user may leave an operator out."""
    packet = operator.rpartition(".")[0]
    return operator, packet, packet.partition(".")[2]


class XnnpackPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: XnnpackOptions) -> None:
        for name in sorted(options.leave_out):
            if not any(name in names for names in map(_names, TABLE)):
                raise OptionError(
                    f"leave_out names {name!r}, which is no operator that the backend takes",
                    where="option of backend xnnpack",
                    hint="names look like aten.add.Tensor, aten.add or add",
                )
        super().__init__(TABLE, leave_out=options.leave_out)
        self._options = options

    def check(self, node: Node, program: ProgramView) -> Verdict:
        """The table's verdict."""
        verdict = super().check(node, program)
        reason = SPECIAL_VALUES.get(str(node.target)) if self._options.exact_special_values else None
        if verdict.supported and reason is not None:
            return Verdict.no(f"{reason} (exact_special_values is set)")
        return verdict

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:  # type: ignore[override]
        """One partition for each operator that is not a passenger, if the user asked for that."""
        if not self._options.per_operator_partitions:
            return None
        verdicts = ((node, self.check(node, program)) for node in program.graph.nodes if node.op == "call_function")
        return [(node,) for node, verdict in verdicts if verdict.supported and not verdict.passenger]
