"""The support table of quantized operators, the rules for units, and the partitioner, which queries it unit by unit.

Operators are checked only here; the lowerings rely on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import torch

from delegatekit_api import Call, Operand, ProgramView, Verdict
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE, Quantization
from delegatekit_toolkit.support import SupportTable, TablePartitioner, row
from delegatekit_toolkit.tosa import DType
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, UnitRules, Units

from .border import border_reason
from .device import Device
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
    eight_bits,
    few_axes,
    integer_operands,
    names_of,
    static_sizes,
)
from .program import LowerCall, ProgramBuilder, scale_of
from .values import Result, Scale, Value

if TYPE_CHECKING:
    from torch.fx import Graph, Node


#: Tables that are kept: more than any device family has.
_DEVICES: Final = 64
#: The storage type of booleans.
_TRUTH: Final = Result(Scale(1.0, 0, DType.BOOL))


def requantize(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """A quantize that directly follows a dequantize: the same numbers in other integers."""
    value = b.integers(call.result)
    return Value(b.requantized(value.tensor, b.scale(call.result), result), value.order)


@lru_cache(maxsize=_DEVICES)
def integer_table(device: Device) -> SupportTable[LowerCall]:
    """The operators that a device supports."""
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


# -- units -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_DEVICES)
def unit_rules(device: Device) -> UnitRules:
    """The rules for units, from the facts of the table's rows."""
    table = integer_table(device)

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


class UnitPartitioner(TablePartitioner):
    """Takes whole units: an operator with the dequantizes before and the quantizes after it.

    Raises OptionError for an unknown operator in `leave_out`.
    """

    def __init__(self, device: Device, leave_out: Collection[str], backend: str) -> None:
        super().__init__(integer_table(device), leave_out=frozenset(leave_out), backend=backend)
        self._rules: Final = unit_rules(device)
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
        return unit_obstacle(self.table, unit)


def unit_obstacle(table: SupportTable[LowerCall], unit: Unit) -> str | None:
    """The reason why a device does not support a unit, by the table of its operators; None if it does."""
    if unit.kind == REQUANTIZE:
        reason = _first_reason((static_sizes, few_axes), unit.anchor)
        return reason or activation_obstacle(unit.operands[0].quantization)
    mixed = _mixed(unit, () if unit.kind == FUNCTION else names_of(table[unit.kind].facts, "constants"))
    if mixed is not None or unit.kind == FUNCTION:
        return mixed or _first_reason((static_sizes, few_axes), unit.anchor) or functions.curve_obstacle(unit)
    return _first_reason((*table.common, *table[unit.kind].constraints), unit.anchor)


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


# -- lowering of units -------------------------------------------------------------------------------------------------


def lower_unit(b: ProgramBuilder, unit: Unit, end: Call) -> Value:
    """The result of a unit; `end` is the quantize of the result, or the call that returns booleans."""
    table = integer_table(b.device)
    if not unit.results:
        return table[unit.kind].lower(b, unit.anchor, _TRUTH)
    assert end.quantization is not None
    after = scale_of(end.quantization, end.description)
    if unit.kind == FUNCTION:
        return functions.lower_function(b, unit.anchor, Result(after))
    if unit.kind == REQUANTIZE:
        return requantize(b, unit.anchor, Result(after))
    bounded = Result(after) if unit.clamp is None else Result(after, functions.clamp_bounds(unit.clamp, after))
    return table[unit.kind].lower(b, unit.anchor, bounded)
