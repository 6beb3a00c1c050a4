"""The operators' support table for each accelerator, and the partitioner, which queries it unit by unit.

Operators are checked only here; the lowerings rely on it. Vela has no fallback: supported operators must compile for
every accelerator of the target's family. The U85 supports operators that the U55 and the U65 do not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch

from delegatekit_api import Call, Operand, OptionError, ProgramView, Verdict
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE, Quantization
from delegatekit_toolkit.support import SupportTable, TablePartitioner, row
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, UnitRules, Units

from .ir.border import border_reason
from .ir.program import LowerCall, ProgramBuilder
from .ir.values import Result, Value
from .operators import (
    convolution,
    elementwise,
    functions,
    linear,
    lookup,
    masks,
    normalization,
    pooling,
    products,
    reduction,
    resize,
    shape,
    softmax,
)
from .operators.common import (
    Rows,
    activation_obstacle,
    constants_of,
    eight_bits,
    few_axes,
    integer_operands,
    static_sizes,
)
from .targets import TARGETS

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from .options import EthosUOptions


def requantize(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """A quantize that directly follows a dequantize: the same numbers in other integers."""
    value = b.integers(call.result)
    return Value(b.requantized(value.tensor, b.scale(call.result), result), value.order)


@lru_cache(maxsize=len(TARGETS))
def support_table(target: str) -> SupportTable[LowerCall]:
    """The operators that an accelerator supports."""
    device = TARGETS[target]
    rows: Rows = (
        *linear.ROWS,
        *convolution.ROWS,
        *products.rows(device),
        *elementwise.ROWS,
        *functions.ROWS,
        *pooling.ROWS,
        *reduction.ROWS,
        *softmax.ROWS,
        *masks.rows(device),
        *lookup.rows(device),
        *normalization.ROWS,
        *resize.rows(device),
        *shape.ROWS,
        row(" ".join(sorted(QUANTIZE | DEQUANTIZE)), requantize, keep=True, passenger=True),
    )
    return SupportTable(rows, common=(static_sizes, few_axes, integer_operands(rows)))


#: The operators that every accelerator supports: those of the U55 and the U65. And those of the U85.
TABLE: Final = support_table("ethos-u55-128")
TABLE_U85: Final = support_table("ethos-u85-256")


# -- units -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=len(TARGETS))
def unit_rules(target: str) -> UnitRules:
    """The rules for units, from the facts of the table's rows."""
    table = support_table(target)

    def having(fact: str) -> frozenset[str]:
        return frozenset(name for name, entry in table.items() if entry.facts.get(fact))

    clamps, smooth = having("clamp"), having("smooth")

    def is_function(calls: Sequence[Call], quantization: Quantization) -> bool:
        """True for functions that a table can hold: of int16, only bounds and one smooth function at a time."""
        if quantization.dtype is not torch.int16:
            return True
        return len(calls) == 1 and calls[0].operator in clamps | smooth

    return UnitRules(
        device="the NPU",
        anchors=frozenset(
            name for name, entry in table.items() if entry.lower not in (functions.lower_function, requantize)
        ),
        activation=activation_obstacle,
        clamps=clamps,
        pairs={name: entry.facts["pair"] for name, entry in table.items() if "pair" in entry.facts},
        pointwise=having("pointwise"),
        is_function=is_function,
        function_obstacle=eight_bits,
        truths=having("truth"),
    )


# -- the partitioner -------------------------------------------------------------------------------------------------


class EthosUPartitioner(TablePartitioner):
    """Takes whole units: an operator with the dequantizes before and the quantizes after it.

    Raises OptionError for an unknown operator in `leave_out`, and for `verify` if the host cannot verify.
    """

    def __init__(self, options: EthosUOptions) -> None:
        if options.verify and TARGETS[options.target].family != "u55":
            hint = "leave it out, and compare with eager what the reference model computes (keep_tosa=True)"
            raise OptionError(
                f"the host executes no commands of the {options.target}", where="option verify", hint=hint
            )
        super().__init__(support_table(options.target), leave_out=options.leave_out, backend="ethosu")
        self._rules: Final = unit_rules(options.target)
        self._plans: Final[WeakKeyDictionary[Graph, Units]] = WeakKeyDictionary()
        #: The reason why an operator was first refused, by method, debug handle and name: it looks different once
        #: others have been decomposed. Without the name it is for parts of an operator that was kept whole.
        self._reasons: Final[dict[tuple[str, Any, str], str]] = {}

    def keep_operators(self) -> Collection[str]:
        """The table's rows with `keep`."""
        return {name for name, entry in self.table.items() if entry.keep}

    def check(self, call: Call) -> Verdict:
        """The verdict on whether the call is part of a unit that the NPU supports."""
        units = self._units(call.program)
        found = units.of(call.node)
        if found:
            members: dict[Node, None] = dict.fromkeys(node for unit in found for node in unit.nodes)
            return Verdict.yes(passenger=all(map(self._is_passenger, found)), group=members)
        return Verdict.no(self._refusal(call, units))

    def _refusal(self, call: Call, units: Units) -> str:
        """The reason why a call is in no unit."""
        name, (method, handle) = call.operator, (call.program.method, call.debug_handle)
        if call.node in units.reasons:
            return self._reasons[method, handle, name]
        if name in DEQUANTIZE:
            return "its readers are operators that the NPU does not take"
        at_border = border_reason(call)
        if at_border is not None:
            return at_border
        whole = self._reasons.get((method, handle, name)) or self._reasons.get((method, handle, ""))
        if whole is not None:
            return whole
        if name not in self.table:
            return f"{name} is not in the backend's operator table"
        return _unquantized(call)

    def _is_passenger(self, unit: Unit) -> bool:
        return unit.kind == REQUANTIZE or (unit.kind != FUNCTION and self.table[unit.kind].is_passenger(unit.anchor))

    def _units(self, program: ProgramView) -> Units:
        found = self._plans.get(program.graph)
        if found is None:
            found = self._plans[program.graph] = Units(program, self._rules)
            found.settle(self._obstacle)
            for node, reason in found.reasons.items():
                call = Call(node, program)
                for name in (call.operator, ""):
                    self._reasons.setdefault((program.method, call.debug_handle, name), reason)
        return found

    def _obstacle(self, unit: Unit) -> str | None:
        """The reason why the NPU does not support a unit."""
        if any(self.is_left_out(call.operator) for call in unit.inner):
            return "left out by the option leave_out"
        if unit.kind == REQUANTIZE:
            reason = _first_reason((static_sizes, few_axes), unit.anchor)
            return reason or activation_obstacle(unit.operands[0].quantization)
        mixed = _mixed(unit, () if unit.kind == FUNCTION else constants_of(self.table[unit.kind].facts))
        if mixed is not None or unit.kind == FUNCTION:
            return mixed or _first_reason((static_sizes, few_axes), unit.anchor) or functions.curve_obstacle(unit)
        return _first_reason((*self.table.common, *self.table[unit.kind].constraints), unit.anchor)


def _first_reason(constraints: Collection[Callable[[Call], str | None]], call: Call) -> str | None:
    return next((reason for constraint in constraints if (reason := constraint(call)) is not None), None)


def _mixed(unit: Unit, constants: Collection[str]) -> str | None:
    """The reason why the types of a unit's activations do not match; `constants` are other operands."""
    fixed = [unit.anchor[name] for name in constants]
    found = {result["dtype"] for result in unit.results}
    found |= {item.integers.dtype for item in unit.operands if item not in fixed and item.integers is not None}
    if len(found) < 2:
        return None
    kinds = sorted(str(dtype).removeprefix("torch.") for dtype in found)
    return f"operands and result are {' and '.join(kinds)}: the NPU needs one type"


def _unquantized(call: Call) -> str:
    """The reason why an operator of the table is in no unit."""
    result: Operand = call.results[0]
    kind = result.dtype_name
    if result.dtype.is_floating_point or result.dtype.is_complex:
        return f"computes in {kind}, but the NPU computes on integers: quantize the model"
    return (
        f"computes on {kind} without scale and zero point: the NPU takes operators between a dequantize and a quantize"
    )
