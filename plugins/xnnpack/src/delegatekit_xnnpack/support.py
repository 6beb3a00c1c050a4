"""The backend's support table: the rows of all operator families, the conditions of every operator, the partitioner.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

import torch

from delegatekit_api import Call, Operand, ProgramView, Verdict
from delegatekit_toolkit.quantized import DynamicQuantization
from delegatekit_toolkit.sizes import Dynamic, largest, smallest
from delegatekit_toolkit.support import SupportTable, TablePartitioner
from delegatekit_toolkit.symbols import is_bounded, shape_of

from .ir.formats import FLOATS
from .ir.types import MAX_RANK
from .operators import elementwise, functions, linear, quantization, reduction, shape, spatial, steps
from .operators.groups import company, needs_company
from .operators.program import Lower, build_layer
from .operators.quantization import QUANTIZATION, dynamic_chain, readers_of
from .passes import optimize
from .passes.conversions import float_reason

if TYPE_CHECKING:
    from torch.fx import Node

    from .options import XnnpackOptions


# -- every operator ----------------------------------------------------------------------------------------------------


def floating_tensors(call: Call) -> str | None:
    """Tensors are float32, float16 or bfloat16, or quantized."""
    if TABLE.fact(call, "any_type"):
        return None
    for operand in (*call.operands, call.program.operand(call.node)):
        value = operand.node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return f"{operand.name} is not one tensor"
        if value.dtype in FLOATS:
            continue
        # Other uses of constants get them from the core in the type of the other operands.
        if operand.is_constant and operand in _constants_of_any_type(call):
            continue
        return f"{operand.name} is {operand.dtype_name}: only float32, float16 and bfloat16 are taken"
    return None


def _constants_of_any_type(call: Call) -> Sequence[Operand | None]:
    """Integer and bool operands that become part of the lowered nodes."""
    name = TABLE.fact(call, "constants_of_any_type")
    operands = () if name is None else call[name]
    return operands if isinstance(operands, tuple) else (operands,)


def bounded_sizes(call: Call) -> str | None:
    """Sizes that change from call to call have an upper bound, and grow together."""
    for operand in _tensors(call):
        if not operand.is_dynamic:
            continue
        if not all(map(is_bounded, operand.shape)):
            return f"{operand.name} has a size without an upper bound, {operand.shape}"
        if not all(largest(size) == max(size.calls) for size in shape_of(operand) if isinstance(size, Dynamic)):
            return f"{operand.name} has a size that shrinks where another one grows, {operand.shape}"
    return None


def rank_and_elements(call: Call) -> str | None:
    """At most 6 axes, and at least one element."""
    for operand in _tensors(call):
        sizes = shape_of(operand)
        if len(sizes) > MAX_RANK:
            return f"{operand.name} has {len(sizes)} axes: XNNPACK allows {MAX_RANK}"
        if any(smallest(size) < 1 for size in sizes):
            return f"{operand.name} may have no elements, {sizes}"
    return None


def _tensors(call: Call) -> tuple[Operand, ...]:
    """The tensors that a call reads, and its result, if that is one tensor."""
    results = call.results
    return (*call.operands, *results) if len(results) == 1 else call.operands


def numbers_known(call: Call) -> str | None:
    """Number arguments, except sizes of results, are not computed from sizes."""
    numbers = call.sizes
    if not numbers or TABLE.fact(call, "takes_sizes"):
        return None
    return f"{numbers[0].name} is a number that is computed from sizes"


# -- the table ---------------------------------------------------------------------------------------------------------

TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *functions.ROWS,
        *steps.ROWS,
        *linear.ROWS,
        *reduction.ROWS,
        *shape.ROWS,
        *spatial.ROWS,
        *quantization.ROWS,
    ],
    common=(floating_tensors, bounded_sizes, rank_and_elements, numbers_known),
)


class XnnpackPartitioner(TablePartitioner):
    """The table, narrowed by the user's options. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: XnnpackOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="xnnpack")
        self._options = options
        self._chains: dict[Node, DynamicQuantization] = {}

    def check(self, call: Call) -> Verdict:
        """The table's verdict, with the calls that this one must be lowered with."""
        verdict = super().check(call)
        if not verdict.supported:
            return verdict
        if self._options.exact_special_values and (reason := TABLE.special_value(call)):
            return Verdict.no(f"{reason} (exact_special_values is set)")
        if call.operator in QUANTIZATION:
            chain = self._chain(call)
            return verdict if chain is None else self._with_readers(chain, call)
        return self._with_company(verdict, call)

    def _with_company(self, verdict: Verdict, call: Call) -> Verdict:
        """The verdict with the calls that a view must be lowered with if it joins or splits sizes that change."""
        members = sorted(company(call), key=lambda member: member.node.name)
        if not members:
            return verdict
        refused = [member for member in members if not super(XnnpackPartitioner, self).check(member).supported]
        if not refused:
            return Verdict.yes(passenger=verdict.passenger, group=[member.node for member in members])
        if needs_company(call):
            name = refused[0].node.name
            return Verdict.no(f"sizes that change are joined, and {name}, which goes with it, is not taken")
        return verdict

    def _chain(self, call: Call) -> DynamicQuantization | None:
        """The chain that quantizes in each call and contains the given one; searched once for all its nodes."""
        if call.node not in self._chains:
            chain = dynamic_chain(call)
            self._chains.update(dict.fromkeys(chain.nodes, chain) if chain is not None else {})
        return self._chains.get(call.node)

    def _with_readers(self, chain: DynamicQuantization, call: Call) -> Verdict:
        """The whole chain and the calls that multiply its result, or nothing of it."""
        readers = readers_of(chain, call)
        refused = [reader for reader in readers if not super(XnnpackPartitioner, self).check(reader).supported]
        if refused:
            return Verdict.no(f"{refused[0].node.name}, which multiplies what is quantized in each call, is not taken")
        return Verdict.yes(passenger=True, group=(*chain.nodes, *(reader.node for reader in readers)))

    def float_reason(self, layer: Sequence[Call]) -> str | None:
        """The reason why the layer does not compute on integers: conversions remain between its operators."""
        graph = build_layer(layer, TABLE, self._options)
        optimize(graph, self._options)
        return float_reason(graph)

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        """One partition for each operator that is not a passenger, if the user requested that."""
        if not self._options.per_operator_partitions:
            return None
        verdicts = ((call.node, self.check(call)) for call in program.calls())
        return [(node,) for node, verdict in verdicts if verdict.supported and not verdict.passenger]
