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
from delegatekit_api.quantization import DynamicQuantization

from . import composed
from .arguments import argument, axis_of, per_axis, rank_of, shape_of, tensor_operands
from .composed import RUN_LIMIT
from .graph import MAX_RANK, Shape
from .joined import company, needs_company, reshape_obstacle, view_obstacle
from .lowering import elementwise, reduction, spatial
from .lowering.shape import index_runs, pad_amounts, selected_indices, slice_bounds
from .precision import FLOATS
from .quantized import QUANTIZATION, dynamic_chain, is_dequantized, rows_for_products, static_integers
from .sizes import Dynamic, dynamic_count, is_bounded, largest, minimum, smallest

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import XnnpackOptions


# -- constraints of every operator -----------------------------------------------------------------------------------


def floating_tensors(node: Node, program: ProgramView) -> str | None:
    """Tensors are float32, float16 or bfloat16 (single numbers known at lowering time are converted), or quantized."""
    if str(node.target) in QUANTIZATION:
        return None
    for operand in (*tensor_operands(node), node):
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return f"{operand.name} is not one tensor"
        if value.dtype in FLOATS:
            continue
        if program.is_constant(operand) and (_is_number(value) or operand in _index_operands(node)):
            continue
        kind = str(value.dtype).removeprefix("torch.")
        return f"{operand.name} is {kind}: only float32, float16 and bfloat16 are taken"
    return None


def _is_number(value: torch.Tensor) -> bool:
    return value.dim() == 0 and not value.is_complex()


def _index_operands(node: Node) -> Sequence[Any]:
    """Integer and bool operands that become part of the lowered nodes."""
    name = _INDEX_OPERANDS.get(str(node.target))
    operands = () if name is None else argument(node, name)
    return operands if isinstance(operands, list | tuple) else (operands,)


_INDEX_OPERANDS = {
    "aten.index_select.default": "index",
    "aten.index.Tensor": "indices",
    "aten.where.self": "condition",
}


def _tensors(node: Node) -> list[Node]:
    """The tensors that a call reads, and its result, if that is one tensor."""
    return [item for item in (*tensor_operands(node), node) if isinstance(item.meta.get("val"), torch.Tensor)]


def bounded_sizes(node: Node, program: ProgramView) -> str | None:
    """Sizes that change from call to call have an upper bound, and grow together."""
    for operand in _tensors(node):
        sizes = operand.meta["val"].shape
        if not all(map(is_bounded, sizes)):
            return f"{operand.name} has a size without an upper bound, {tuple(sizes)}"
        if not all(largest(size) == max(size.calls) for size in shape_of(operand) if isinstance(size, Dynamic)):
            return f"{operand.name} has a size that shrinks where another one grows, {tuple(sizes)}"
    return None


def rank_and_elements(node: Node, program: ProgramView) -> str | None:
    """At most 6 axes, and at least one element."""
    for operand in _tensors(node):
        shape = shape_of(operand)
        if len(shape) > MAX_RANK:
            return f"{operand.name} has {len(shape)} axes: XNNPACK allows {MAX_RANK}"
        if 0 in shape:
            return f"{operand.name} has no elements, {shape}"
        if any(smallest(size) < 1 for size in shape):
            return f"{operand.name} has no elements in some calls, {shape}"
    return None


#: Operators whose size arguments need not be read: they follow from the shape of the result.
_TAKE_SIZES = (
    *("view_copy", "expand_copy", "slice_copy", "select_copy", "upsample_bilinear2d", "upsample_nearest2d"),
    *("choose_qparams_affine", "quantize_affine", "dequantize_affine"),
)


def numbers_known(node: Node, program: ProgramView) -> str | None:
    """Numbers beside the tensors, but for sizes of results, are not computed from sizes."""
    numbers = [operand.name for operand in node.all_input_nodes if operand not in tensor_operands(node)]
    if not numbers or str(node.target).split(".")[1] in _TAKE_SIZES:
        return None
    return f"{numbers[0]} is a number that is computed from sizes"


# -- shared constraints ----------------------------------------------------------------------------------------------


def not_scalar(node: Node, program: ProgramView) -> str | None:
    """No operand and no result of rank 0."""
    for operand in (*tensor_operands(node), node):
        if rank_of(operand) == 0:
            return f"{operand.name} has rank 0: XNNPACK works along an axis"
    return None


def constant(*names: str) -> Constraint:
    """Constraint: the named tensor arguments are constants (or absent)."""

    def check(node: Node, program: ProgramView) -> str | None:
        for name in names:
            operand = argument(node, name)
            if operand is not None and not program.is_constant(operand) and not is_dequantized(operand, program):
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


def not_narrowed(node: Node, program: ProgramView) -> str | None:
    """The result is not of a narrower type than the input."""
    before, after = argument(node, "self").meta["val"].dtype, node.meta["val"].dtype
    if after in (before, torch.float32):
        return None
    return f"dtype = {after}: PyTorch rounds the input to it, which adds up to another sum"


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
    """The exponent, or its negative, is a whole number to 8 or a multiple of 1/4 to 4, but not 0."""
    exponent = argument(node, "exponent")
    if isinstance(exponent, int | float) and elementwise.exact_exponent(exponent):
        return None
    return f"exponent {exponent}: XNNPACK has no power function, only 1 to 8 and quarters to 4 can be composed"


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


def plain_conversion(node: Node, program: ProgramView) -> str | None:
    """To float32, float16 or bfloat16 from another of these, and nothing else."""
    for name in ("layout", "device", "memory_format"):
        if argument(node, name) not in (None, torch.strided, torch.device("cpu"), torch.preserve_format):
            return f"{name} = {argument(node, name)}: only the type of the elements is converted"
    return None


def known_repeats(node: Node, program: ProgramView) -> str | None:
    """Axes are expanded to sizes that do not change."""
    shape, target = shape_of(node.args[0]), shape_of(node)  # type: ignore[arg-type]
    kept = (1,) * (len(target) - len(shape)) + shape
    changing = [want for have, want in zip(kept, target, strict=True) if have != want and isinstance(want, Dynamic)]
    return f"an axis is repeated {changing[0]} times, which changes from call to call" if changing else None


def few_repeats(node: Node, program: ProgramView) -> str | None:
    """An axis for each repetition fits into 6 axes; where several sizes change, 25 repetitions at most."""
    tiles = elementwise.repeat_tiles(node)
    if dynamic_count(shape_of(node)) > 1:
        most = max(tile for tile, _ in tiles)
        return None if most <= RUN_LIMIT else f"{most} repetitions where several sizes change"
    axes = sum(2 if tile > 1 else 1 for tile, _ in tiles)
    if axes <= MAX_RANK:
        return None
    return f"{len(tiles)} axes, {axes - len(tiles)} of them repeated, need {axes}: XNNPACK allows {MAX_RANK}"


def viewable(node: Node, program: ProgramView) -> str | None:
    """At most one size of the result changes, or those that change are neither joined nor cut."""
    return view_obstacle(node)


def sliceable(node: Node, program: ProgramView) -> str | None:
    """The step is 1, or one axis more fits into 6; a slice of an axis that changes begins and ends at known places."""
    axis, start, _, step = slice_bounds(node)
    shape, result = shape_of(argument(node, "self")), shape_of(node)
    size, count = shape[axis], result[axis]
    if not isinstance(start, int):
        return "the slice begins at a place that changes from call to call"
    if isinstance(size, Dynamic) and (
        step != 1 or minimum(start + largest(count), size) - start != count  # what XNNPACK's slice leaves
    ):
        return f"a slice of {count} elements, step {step}, of {size}: XNNPACK's slices end at a known place"
    if step == 1:
        return None
    if rank_of(node) == MAX_RANK:
        return f"step {step} along one of {MAX_RANK} axes: XNNPACK slices with step 1"
    before, after = shape[:axis], shape[axis + 1 :]
    rows = (*before, count, step, *after)
    return reshape_obstacle((*before, count * step, *after), rows) or reshape_obstacle(
        (*before, count, 1, *after), result
    )


def selects_known(node: Node, program: ProgramView) -> str | None:
    """The index is known, and exists in every call."""
    shape, index = shape_of(argument(node, "self")), argument(node, "index")
    axis = axis_of(argument(node, "dim"), len(shape))
    size = shape[axis]
    if not isinstance(index, int) or (isinstance(size, Dynamic) and not 0 <= index < smallest(size)):
        return "the index is counted from the end of an axis that changes, or computed"
    return reshape_obstacle((*shape[:axis], 1, *shape[axis + 1 :]), shape_of(node))


def few_runs(node: Node, program: ProgramView) -> str | None:
    """The indices are constants that form at most 25 runs of neighbours."""
    indices = selected_indices(node, program)
    if indices is None:
        return "index is computed: XNNPACK has no gather"
    runs = len(index_runs(indices))
    shape = shape_of(argument(node, "self"))
    size = shape[axis_of(argument(node, "dim"), len(shape))]
    if isinstance(size, Dynamic) and max(indices) >= smallest(size):
        return f"index {max(indices)} does not exist in every call: the axis has {size} elements"
    return None if runs <= RUN_LIMIT else f"{runs} separate runs of indices: XNNPACK has no gather"


def same_ranks(node: Node, program: ProgramView) -> str | None:
    """All tensors have the same rank."""
    ranks = {rank_of(operand) for operand in argument(node, "tensors")}
    return None if len(ranks) == 1 else f"tensors of ranks {sorted(ranks)} are joined"


def pads_what_is_left(node: Node, program: ProgramView) -> str | None:
    """Negative amounts leave something to pad, and do not count from the end of an axis that changes."""
    for size, (before, after) in zip(shape_of(argument(node, "self")), pad_amounts(node), strict=True):
        if smallest(size) + min(0, before) + min(0, after) < 1:
            return f"{before} and {after} around {size} elements cut everything off"
        if isinstance(size, Dynamic) and after < 0:
            return (
                f"{-after} elements are cut off the end of an axis that changes: XNNPACK's slices end at a known place"
            )
    return None


def shuffles_a_batch(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W), of which one size may change."""
    shape = shape_of(argument(node, "self"))
    if len(shape) != 4:
        return f"an input of rank {len(shape)}: only (N, C, H, W) is taken"
    return f"several sizes of {shape} change from call to call" if dynamic_count(shape) > 1 else None


def halves_known(node: Node, program: ProgramView) -> str | None:
    """The axis that is halved does not change."""
    shape = shape_of(argument(node, "self"))
    size = shape[argument(node, "dim") % len(shape)]
    return f"half of {size} elements is not at a known place" if isinstance(size, Dynamic) else None


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
    """Where several sizes change, both operands are matrices or stacks of these."""
    shape, ranks = shape_of(node), {rank_of(operand) for operand in tensor_operands(node)}
    return reshape_obstacle((*shape, 1), shape) if 1 in ranks else None


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
        if argument(node, "ceil_mode") and dynamic_count(shape_of(argument(node, "self"))[-spatial:]):
            return "ceil_mode where the size changes from call to call: XNNPACK's padding is known beforehand"
        divisor = argument(node, "divisor_override") if divides else None
        if divisor is None:
            return None
        window = spatial_window(node, spatial)
        if divisor != window or any(per_axis(argument(node, "padding"), spatial)) or argument(node, "ceil_mode"):
            return f"divisor_override = {divisor}: XNNPACK divides by the number of elements in the window"
        return None

    divisor = ", no divisor of its own" if divides else ""
    check.__doc__ = f"{spatial} spatial axes{divisor}; with ceil_mode, they do not change."
    return check


def spatial_window(node: Node, axes: int) -> int:
    """Elements of a pooling window."""
    return math.prod(per_axis(argument(node, "kernel_size"), axes))


def few_windows(axes: int) -> Constraint:
    """Constraint: the result's sizes divide the input's, or are small."""

    def check(node: Node, program: ProgramView) -> str | None:
        before, after = shape_of(argument(node, "self"))[-axes:], shape_of(node)[-axes:]
        if dynamic_count((*before, *after)):
            return f"{before} to {after} needs windows that change from call to call"
        if all(old % new == 0 for old, new in zip(before, after, strict=True)) or max(map(largest, after)) <= RUN_LIMIT:
            return None
        return f"{before} to {after} needs more than {RUN_LIMIT} windows of different sizes"

    check.__doc__ = "The result's sizes divide the input's, or are 25 at most; and none of them changes."
    return check


def resize_ratio(node: Node, program: ProgramView) -> str | None:
    """The new height and width do not change; scale factors, if given, are exactly the ratio of the sizes."""
    if dynamic_count(shape_of(node)[2:]):
        return "a height or width that changes from call to call: XNNPACK resizes to a known one"
    if argument(node, "align_corners") or spatial.resize_is_exact(node):
        return None
    return f"scale_factors {argument(node, 'scale_factors')} are not the ratio of the sizes"


def nearest_ratio(node: Node, program: ProgramView) -> str | None:
    """Rows and columns are repeated equally often; or sizes are known, and what repeats has at most 25 runs."""
    before, after = shape_of(argument(node, "input"))[2:], shape_of(node)[2:]
    if spatial.resize_is_exact(node):
        if spatial.nearest_repeats_evenly(node):
            return None
        sizes = [largest(size) for size in before]
        patterns = map(spatial.pattern_of, spatial.nearest_indices(node), sizes)
        if not dynamic_count((*before, *after)) and all(len(index_runs(found)) <= RUN_LIMIT for found, _ in patterns):
            return None
    return f"nearest neighbours from {before} to {after} are not whole repetitions"


def image(node: Node, program: ProgramView) -> str | None:
    """The input is (N, C, H, W)."""
    rank = rank_of(argument(node, "input"))
    return None if rank == 4 else f"an input of rank {rank}"


# -- reductions ------------------------------------------------------------------------------------------------------


def reducible(*, counted: bool = False, averaged: bool = False) -> Constraint:
    """Constraint: the axes to reduce can be brought where XNNPACK reduces them.

    `counted`: the number of elements must not change; `averaged`: they are reduced by means.
    """

    def check(node: Node, program: ProgramView) -> str | None:
        shape, reduced = shape_of(argument(node, "self")), reduction.reduced_sizes(node)
        if counted and dynamic_count(reduced):
            return f"a reduction over {math.prod(reduced)} elements, a number that changes from call to call"
        return _pairs_obstacle(shape, len(reduced)) if averaged else _pools_obstacle(shape)

    check.__doc__ = (
        "The number of reduced elements does not change, and w" if counted else "W"
    ) + f"here several sizes change, there are at most {MAX_RANK - 1 if averaged else 4} axes."
    return check


def whole_extreme(node: Node, program: ProgramView) -> str | None:
    """No size changes."""
    shape = shape_of(argument(node, "self"))
    return f"a maximum of {shape}, which changes from call to call" if dynamic_count(shape) else None


def few_pooled(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 4 axes."""
    return _pools_obstacle(shape_of(argument(node, "self")))


def _pairs_obstacle(shape: Shape, reduced: int) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) + reduced % 2 <= MAX_RANK - (reduced == len(shape)):
        return None
    return f"a mean of {len(shape)} axes, several of which change: XNNPACK reduces them in pairs"


def _pools_obstacle(shape: Shape) -> str | None:
    if dynamic_count(shape) < 2 or len(shape) <= 4:
        return None
    return f"a maximum of {len(shape)} axes, several of which change: XNNPACK pools feature maps"


def enough_elements(node: Node, program: ProgramView) -> str | None:
    """There are more elements than the correction."""
    count, correction = math.prod(reduction.reduced_sizes(node)), reduction.variance_correction(node)
    if isinstance(count, Dynamic):
        return f"correction {correction:g} of {count} elements, a number that changes" if correction else None
    return None if count > correction >= 0 else f"correction {correction:g} of {count} elements"


def few_normalised(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 5 axes."""
    return _pairs_obstacle(shape_of(argument(node, "input")), len(argument(node, "normalized_shape")))


def few_groups(node: Node, program: ProgramView) -> str | None:
    """Where several sizes change, there are at most 4 axes and 64 groups."""
    shape, groups = shape_of(argument(node, "input")), argument(node, "num_groups")
    batch, channels, *rest = shape
    if dynamic_count(shape) < 2:
        return None
    grouped = (batch, groups, channels // groups, *rest)
    return (
        reshape_obstacle(shape, grouped)
        or reshape_obstacle(grouped, shape)
        or _pairs_obstacle(grouped, len(grouped) - 2)
    )


def positive_epsilon(node: Node, program: ProgramView) -> str | None:
    """eps is positive."""
    epsilon = argument(node, "eps")
    return None if epsilon > 0 else f"eps = {epsilon}: a constant input would be divided by zero"


#: Of operators that reduce by a maximum first, and by a sum then.
exponential_sums = (reducible(counted=True, averaged=True), few_pooled)


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
        *_row("trunc.default round.default sign.default log1p.default expm1.default sinh.default cosh.default"),
        *_row("div.Tensor_mode div.Scalar_mode", number_operand, composed.short_divisors),
        *_row("fmod.Tensor fmod.Scalar remainder.Tensor remainder.Scalar", composed.powers_of_two),
        *_row("mish.default log_sigmoid.default", keep=True),
        *_row("softplus.default", composed.positive_number("beta"), composed.late_threshold, keep=True),
        *_row("celu.default", composed.positive_number("alpha"), keep=True),
        *_row("threshold.default", composed.finite_numbers("threshold", "value"), keep=True),
        *_row("hardshrink.default softshrink.default", composed.positive_number("lambd"), keep=True),
        *_row("lerp.Scalar", composed.finite_numbers("weight"), keep=True),
        *_row("clamp.Tensor"),
        *_row("where.self", composed.masked_constant),
        *_row("relu.default"),
        *_row("hardtanh.default clamp.default", ordered_bounds, keep=True),
        *_row("leaky_relu.default", normal_number("negative_slope"), keep=True),
        *_row("elu.default", plain_elu, normal_number("scale"), keep=True),
        *_row("prelu.default", slope_per_channel, keep=True),
        *_row("glu.default", not_scalar, halves_known, keep=True),
        *_row("_to_copy.default", plain_conversion, passenger=True),
        *_row("expand_copy.default", known_repeats, passenger=True),
        *_row("repeat.default", few_repeats, passenger=True),
        *_row("view_copy.default unsqueeze_copy.default squeeze_copy.dims", viewable, passenger=True),
        *_row("permute_copy.default", passenger=True),
        *_row("slice_copy.Tensor", sliceable, passenger=True),
        *_row("index_select.default", not_scalar, few_runs, passenger=True),
        *_row("select_copy.int", selects_known, passenger=True),
        *_row("index.Tensor", composed.chosen_by_constants, passenger=True),
        *_row("flip.default", composed.few_reversed, passenger=True),
        *_row("slice_scatter.default select_scatter.default", composed.written_at_known_places, passenger=True),
        *_row("copy.default", composed.copied_whole, passenger=True),
        *_row("cat.default", not_scalar, same_ranks, passenger=True),
        *_row("constant_pad_nd.default", pads_what_is_left, float32_number("value"), passenger=True),
        *_row("pixel_shuffle.default", shuffles_a_batch, keep=True, passenger=True),
        *_row("pixel_unshuffle.default", composed.scales_down, keep=True, passenger=True),
        *_row("linear.default", matrix_weight, keep=True),
        *_row("mm.default bmm.default"),
        *_row("matmul.default", matrix_operands, keep=True),
        *_row("addmm.default baddbmm.default", unscaled),
        *_row("convolution.default", one_or_two_dimensional, constant("weight", "bias"), convolution_padding),
        *_row("max_pool1d.default", pool_shape(1), keep=True),
        *_row("max_pool2d.default", pool_shape(2), keep=True),
        *_row("avg_pool1d.default", pool_shape(1), keep=True),
        *_row("avg_pool2d.default", pool_shape(2, divides=True)),
        *_row("adaptive_avg_pool1d.default", few_windows(1), keep=True),
        *_row("_adaptive_avg_pool2d.default", few_windows(2)),
        *_row("upsample_bilinear2d.vec", image, resize_ratio, keep=True),
        *_row("upsample_nearest2d.vec", image, nearest_ratio, keep=True),
        *_row("mean.dim", not_narrowed, reducible(averaged=True)),
        *_row("sum.dim_IntList", not_narrowed, reducible(counted=True, averaged=True)),
        *_row("var.correction", enough_elements, reducible(averaged=True)),
        *_row("amax.default amin.default", reducible(counted=True)),
        *_row("max.default min.default", whole_extreme),
        *_row("_softmax.default", not_scalar),
        *_row("_log_softmax.default", not_scalar, *exponential_sums),
        *_row("logsumexp.default", *exponential_sums, keep=True),
        *_row("layer_norm.default", positive_epsilon, few_normalised, keep=True),
        *_row("group_norm.default", positive_epsilon, few_groups, keep=True),
        *(
            OperatorSupport(f"quantized_decomposed.{name}", (static_integers,), keep=True, passenger=True)
            for name in (
                "quantize_per_tensor.default",
                "dequantize_per_tensor.default",
                "dequantize_per_channel.default",
            )
        ),
        *(
            OperatorSupport(f"torchao.{name}.default", (rows_for_products,), keep=True, passenger=True)
            for name in ("choose_qparams_affine", "quantize_affine", "dequantize_affine")
        ),
    ],
    common=(floating_tensors, bounded_sizes, rank_and_elements, numbers_known),
)

#: Operators whose result for special inputs is not PyTorch's, measured on the runtime of ExecuTorch 1.5.1 for x86.
SPECIAL_VALUES = {
    "aten.amax.default": "maximum pooling passes over NaN",
    "aten.amin.default": "maximum pooling passes over NaN",
    "aten.max.default": "maximum pooling passes over NaN",
    "aten.min.default": "maximum pooling passes over NaN",
    "aten.logsumexp.default": "maximum pooling passes over NaN, and exp(NaN) is 0",
    "aten._log_softmax.default": "maximum pooling passes over NaN, and exp(NaN) is 0",
    "aten.clamp.Tensor": "the maximum of NaN and a number is the number",
    "aten.where.self": "the maximum of NaN and a number is the number",
    "aten.cosh.default": "exp(NaN) is 0",
    "aten.sign.default": "sign(NaN) is NaN, PyTorch says 0",
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


#: Operators with special numbers that are too large for float16.
_TOO_LARGE_FOR_FLOAT16 = {f"aten.{name}.default" for name in ("sigmoid", "silu", "glu", "sin", "cos")}


def _special_value(node: Node) -> str | None:
    """For which special inputs the operator's result is not PyTorch's; None if there are none."""
    name, value = str(node.target), node.meta["val"]
    if name == "aten.pow.Tensor_Scalar" and argument(node, "exponent") % 1:
        return SPECIAL_VALUES["aten.sqrt.default"]
    if name in _TOO_LARGE_FOR_FLOAT16 and value.dtype is torch.float16:
        return None
    return SPECIAL_VALUES.get(name)


def _is_selection(node: Node) -> bool:
    """Whether an upsampling is lowered to slices, which are worth a delegate no more than other selections."""
    return str(node.target) == "aten.upsample_nearest2d.vec" and not spatial.nearest_repeats_evenly(node)


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
        self._chains: dict[Node, DynamicQuantization] = {}

    def check(self, node: Node, program: ProgramView) -> Verdict:
        """The table's verdict."""
        verdict = super().check(node, program)
        if verdict.supported and _is_selection(node):
            verdict = Verdict.yes(passenger=True)
        reason = _special_value(node) if self._options.exact_special_values else None
        if verdict.supported and reason is not None:
            return Verdict.no(f"{reason} (exact_special_values is set)")
        return self._with_company(verdict, node, program) if verdict.supported else verdict

    def _with_company(self, verdict: Verdict, node: Node, program: ProgramView) -> Verdict:
        """The verdict with the nodes that a view which joins or cuts sizes that change must be lowered with."""
        if str(node.target) in QUANTIZATION:
            chain = self._chain(node)
            if chain is not None:
                return self._with_readers(chain, program)
            # A conversion of activations is worth a delegate: without one, it is four or five operators.
            return Verdict.yes(passenger=is_dequantized(node, program))
        members = sorted(company(node), key=lambda member: member.name)
        refused = [member for member in members if not TablePartitioner.check(self, member, program).supported]
        if not refused:
            return Verdict.yes(passenger=verdict.passenger, group=members)
        if needs_company(node):
            return Verdict.no(f"sizes that change are joined, and {refused[0].name}, which goes with it, is not taken")
        return verdict

    def _chain(self, node: Node) -> DynamicQuantization | None:
        """The chain that quantizes in each call and has the node in it; searched once for all its nodes."""
        if node not in self._chains:
            chain = dynamic_chain(node)
            self._chains.update(dict.fromkeys(chain.nodes, chain) if chain is not None else {})
        return self._chains.get(node)

    def _with_readers(self, chain: DynamicQuantization, program: ProgramView) -> Verdict:
        """The whole chain and those that multiply what it gives, or nothing of it."""
        readers = tuple(chain.nodes[-1].users)
        refused = [reader for reader in readers if not TablePartitioner.check(self, reader, program).supported]
        if refused:
            return Verdict.no(f"{refused[0].name}, which multiplies what is quantized in each call, is not taken")
        return Verdict.yes(passenger=True, group=(*chain.nodes, *readers))

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:  # type: ignore[override]
        """One partition for each operator that is not a passenger, if the user asked for that."""
        if not self._options.per_operator_partitions:
            return None
        verdicts = ((node, self.check(node, program)) for node in program.graph.nodes if node.op == "call_function")
        return [(node,) for node, verdict in verdicts if verdict.supported and not verdict.passenger]
