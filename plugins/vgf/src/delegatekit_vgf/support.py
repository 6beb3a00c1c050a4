"""The support tables and the partitioner: quantized units on integers, and operators on numbers for everything else.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from delegatekit_api import Call, ProgramView, Verdict
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE
from delegatekit_toolkit.constraints import elements, is_used, max_rank
from delegatekit_toolkit.narrowing import narrow_constants
from delegatekit_toolkit.support import SupportTable, TablePartitioner, check_left_out, leavable_names
from delegatekit_toolkit.tosa.lowering.device import COMPLETE
from delegatekit_toolkit.tosa.lowering.program import LowerCall
from delegatekit_toolkit.tosa.lowering.support import integer_table, unit_obstacle, unit_rules
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, Units

from .ir.builder import Lower
from .ir.limits import AXES
from .operators import (
    convolution,
    elementwise,
    functions,
    indexing,
    linear,
    normalization,
    pooling,
    quantization,
    reduction,
    resizing,
    scattering,
    shape,
)

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from .options import VgfOptions


def narrow_integers(call: Call) -> str | None:
    """No int64, but constants and results that nothing uses: TOSA has 32 bits."""
    results = call.results if len(call.results) == 1 else (x for at, x in enumerate(call.results) if is_used(call, at))
    wide = next((x for x in (*call.operands, *results) if x.dtype_name == "int64" and not x.is_constant), None)
    if wide is None:
        return None
    return f"{wide.name} is int64, TOSA has 32 bits: give the program int32, or convert them (`.to(torch.int32)`)"


def axes(call: Call) -> str | None:
    """Tensors have axes, which Vulkan's need. Constants may have none."""
    bare = next((item for item in call.tensors if not item.rank and not item.is_constant), None)
    return None if bare is None else f"{bare.name} has no axes, which Vulkan's tensors need"


#: What is computed on numbers, and on integers as numbers.
TABLE: Final[SupportTable[Lower]] = SupportTable(
    [
        *elementwise.ROWS,
        *functions.ROWS,
        *reduction.ROWS,
        *shape.ROWS,
        *indexing.ROWS,
        *scattering.ROWS,
        *linear.ROWS,
        *normalization.ROWS,
        *convolution.ROWS,
        *pooling.ROWS,
        *resizing.ROWS,
        *quantization.ROWS,
    ],
    common=(narrow_integers, axes, max_rank(AXES), elements(), narrow_constants),
)
#: What is computed between a dequantize and a quantize, on integers.
INTEGER_TABLE: Final[SupportTable[LowerCall]] = integer_table(COMPLETE)


class VgfPartitioner(TablePartitioner):
    """Takes whole units, and operators on numbers. Raises OptionError for an unknown operator in `leave_out`."""

    def __init__(self, options: VgfOptions) -> None:
        check_left_out(options.leave_out, {*TABLE, *INTEGER_TABLE}, "vgf")
        super().__init__(TABLE, whole_graph=options.whole_graph, backend="vgf")
        self._names: Final = options.leave_out
        self._plans: Final[WeakKeyDictionary[Graph, Units]] = WeakKeyDictionary()

    def keep_operators(self) -> Collection[str]:
        """The rows with `keep` of both tables, less those left out."""
        integers = {name for name, entry in INTEGER_TABLE.items() if entry.keep and not self.is_left_out(name)}
        return {*super().keep_operators(), *integers}

    def is_left_out(self, operator: str) -> bool:
        """True if the user leaves the operator out."""
        return bool(self._names & leavable_names(operator))

    def check(self, call: Call) -> Verdict:
        """The verdict on the units of the call, or on the call alone."""
        units = self.units(call.program)
        found = units.of(call.node)
        if found:
            members: dict[Node, None] = dict.fromkeys(node for unit in found for node in unit.nodes)
            return Verdict.yes(passenger=all(map(_is_passenger, found)), group=members)
        verdict = super().check(call)
        if verdict.supported or call.node not in units.reasons or call.operator in QUANTIZE | DEQUANTIZE:
            return verdict
        return Verdict.no(f"on integers: {units.reasons[call.node]}; on numbers: {verdict.reason}")

    def units(self, program: ProgramView) -> Units:
        """The units of a program that are computed on integers."""
        found = self._plans.get(program.graph)
        if found is None:
            found = self._plans[program.graph] = Units(program, unit_rules(COMPLETE))
            found.settle(self._obstacle, shares=True)
        return found

    def _obstacle(self, unit: Unit) -> str | None:
        """The reason why a unit is not computed on integers."""
        if any(self.is_left_out(call.operator) for call in unit.inner):
            return "left out by the option leave_out"
        bare = next(filter(None, map(axes, (unit.anchor, *unit.inner))), None)
        return bare or unit_obstacle(INTEGER_TABLE, unit)


def _is_passenger(unit: Unit) -> bool:
    return unit.kind == REQUANTIZE or (unit.kind != FUNCTION and INTEGER_TABLE[unit.kind].is_passenger(unit.anchor))
