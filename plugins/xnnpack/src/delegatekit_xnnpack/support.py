"""What the backend takes: operator -> constraints. Each constraint says in words why it refuses a node, or None.

This is the one place where operators are checked; the lowerings rely on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch

from delegatekit_api import (
    Call,
    Constraint,
    OperatorSupport,
    ProgramView,
    SupportTable,
    TablePartitioner,
    Verdict,
    check_left_out,
)
from delegatekit_api.quantization import DynamicQuantization

from .arguments import argument
from .constraints.elementwise import (
    exact_power,
    finite_numbers,
    late_threshold,
    masked_constant,
    number_operand,
    ordered_bounds,
    plain_elu,
    positive_number,
    powers_of_two,
    short_divisors,
    slope_per_channel,
)
from .constraints.general import (
    bounded_sizes,
    constant,
    float32_number,
    floating_tensors,
    normal_number,
    not_narrowed,
    not_scalar,
    numbers_known,
    rank_and_elements,
)
from .constraints.linear import matrix_operands, matrix_weight, unscaled
from .constraints.reduction import (
    enough_elements,
    exponential_sums,
    few_groups,
    few_normalised,
    positive_epsilon,
    reducible,
    whole_extreme,
)
from .constraints.shape import (
    chosen_by_constants,
    copied_whole,
    few_repeats,
    few_reversed,
    few_runs,
    halves_known,
    known_repeats,
    pads_what_is_left,
    plain_conversion,
    same_ranks,
    scales_down,
    selects_known,
    shuffles_a_batch,
    sliceable,
    viewable,
    written_at_known_places,
)
from .constraints.spatial import (
    convolution_padding,
    few_windows,
    image,
    nearest_ratio,
    one_or_two_dimensional,
    pool_shape,
    resize_ratio,
)
from .conversions import float_reason, fold_conversions
from .joined import company, needs_company
from .lowering import build_layer, spatial
from .passes import optimise
from .quantized import QUANTIZATION, dynamic_chain, is_dequantized, rows_for_products, static_integers

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import XnnpackOptions


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
        *_row("div.Tensor_mode div.Scalar_mode", number_operand, short_divisors),
        *_row("fmod.Tensor fmod.Scalar remainder.Tensor remainder.Scalar", powers_of_two),
        *_row("mish.default log_sigmoid.default", keep=True),
        *_row("softplus.default", positive_number("beta"), late_threshold, keep=True),
        *_row("celu.default", positive_number("alpha"), keep=True),
        *_row("threshold.default", finite_numbers("threshold", "value"), keep=True),
        *_row("hardshrink.default softshrink.default", positive_number("lambd"), keep=True),
        *_row("lerp.Scalar", finite_numbers("weight"), keep=True),
        *_row("clamp.Tensor"),
        *_row("where.self", masked_constant),
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
        *_row("index.Tensor", chosen_by_constants, passenger=True),
        *_row("flip.default", few_reversed, passenger=True),
        *_row("slice_scatter.default select_scatter.default", written_at_known_places, passenger=True),
        *_row("copy.default", copied_whole, passenger=True),
        *_row("cat.default", not_scalar, same_ranks, passenger=True),
        *_row("constant_pad_nd.default", pads_what_is_left, float32_number("value"), passenger=True),
        *_row("pixel_shuffle.default", shuffles_a_batch, keep=True, passenger=True),
        *_row("pixel_unshuffle.default", scales_down, keep=True, passenger=True),
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


class XnnpackPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: XnnpackOptions) -> None:
        check_left_out(options.leave_out, TABLE, "xnnpack")
        super().__init__(TABLE, leave_out=options.leave_out)
        self._options = options
        self._chains: dict[Node, DynamicQuantization] = {}

    def check(self, call: Call) -> Verdict:
        """The table's verdict."""
        node, program = call.node, call.program
        verdict = super().check(call)
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
        refused = [member for member in members if not TablePartitioner.check(self, Call(member, program)).supported]
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
        refused = [reader for reader in readers if not TablePartitioner.check(self, Call(reader, program)).supported]
        if refused:
            return Verdict.no(f"{refused[0].name}, which multiplies what is quantized in each call, is not taken")
        return Verdict.yes(passenger=True, group=(*chain.nodes, *readers))

    def float_reason(self, layer: Sequence[Call]) -> str | None:
        """What the layer is lowered to computes on integers, unless conversions are left between its operators."""
        graph = build_layer(layer, self._options)
        optimise(graph, self._options.block_bytes, exact=self._options.exact_special_values)
        fold_conversions(graph)
        return float_reason(graph)

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:  # type: ignore[override]
        """One partition for each operator that is not a passenger, if the user asked for that."""
        if not self._options.per_operator_partitions:
            return None
        verdicts = (
            (node, self.check(Call(node, program))) for node in program.graph.nodes if node.op == "call_function"
        )
        return [(node,) for node, verdict in verdicts if verdict.supported and not verdict.passenger]
