"""The calls that the backend takes: quantized operators with the conversions around them, and conversions alone."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from delegatekit_api import Call, ProgramView, Verdict
from delegatekit_api.operators import RuntimeTensor
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE
from delegatekit_toolkit.support import SupportTable, TablePartitioner, row
from delegatekit_toolkit.units import FUNCTION, REQUANTIZE, Unit, UnitRules, Units

from .ir.numbers import Scale
from .ir.program import LowerCall, ProgramBuilder
from .operators import convolution, elementwise, functions, linear, pooling, shape, softmax
from .operators.common import Rows, activation_obstacle, integer_operands, some_elements
from .targets import extension_of

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from .options import CortexMOptions


def integers_of_one_scale(call: Call) -> str | None:
    """To or from int8 with one scale that is known; constants are not converted in each call."""
    reason = activation_obstacle(call.quantization)
    if reason is not None:
        return reason
    return f"{call['input'].name} is constant" if call["input"].is_constant else None


def _converted(b: ProgramBuilder, call: Call, result: Scale) -> RuntimeTensor:
    raise NotImplementedError(call.operator)  # conversions are lowered where a partition begins and ends


_CONVERSIONS: Final = (
    "quantized_decomposed.quantize_per_tensor.default quantized_decomposed.dequantize_per_tensor.default"
)
_ROWS: Final[Rows] = (
    *linear.ROWS,
    *convolution.ROWS,
    *elementwise.ROWS,
    *functions.ROWS,
    *pooling.ROWS,
    *softmax.ROWS,
    *shape.ROWS,
)
#: The operators that the backend takes.
TABLE: Final = SupportTable[LowerCall](
    (*_ROWS, row(_CONVERSIONS, _converted, integers_of_one_scale, keep=True)),
    common=(some_elements, integer_operands(_ROWS)),
)

RULES: Final = UnitRules(
    device="the library",
    anchors=frozenset(name for entry in _ROWS if entry.lower is not functions.refused for name in entry.operators),
    activation=activation_obstacle,
    clamps=frozenset(name for entry in functions.ROWS if entry.facts.get("clamp") for name in entry.operators),
    pointwise=frozenset(name for entry in functions.ROWS for name in entry.operators)
    | {"aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"},
)


class CortexMPartitioner(TablePartitioner):
    """Takes whole units, an operator with the dequantizes before and the quantizes after it, and single conversions.

    Raises OptionError for an unknown operator in `leave_out`, and for an extension that the target does not have.
    """

    def __init__(self, options: CortexMOptions) -> None:
        super().__init__(TABLE, leave_out=options.leave_out, backend="cortexm")
        extension_of(options.target, options.extension)
        self._units: Final[WeakKeyDictionary[Graph, Units]] = WeakKeyDictionary()

    def keep_operators(self) -> Collection[str]:
        """The operators of rows with `keep`, and all conversions: layers are found by them."""
        return {*super().keep_operators(), *QUANTIZE, *DEQUANTIZE}

    def check(self, call: Call) -> Verdict:
        """The verdict on whether a call is part of a unit that the library computes, or a conversion."""
        units = self._units_of(call.program)
        found = units.of(call.node)
        if found:
            members: dict[Node, None] = dict.fromkeys(node for unit in found for node in unit.nodes)
            return Verdict.yes(group=members, passenger=all(map(self._is_passenger, found)))
        name = call.operator
        if name in QUANTIZE | DEQUANTIZE:
            return super().check(call) if name in TABLE else Verdict.no("its readers are not taken")
        if call.node in units.reasons:
            return Verdict.no(units.reasons[call.node])
        if name not in TABLE:
            return Verdict.no(f"{name} is not in the backend's operator table")
        kind = call.results[0].dtype_name
        return Verdict.no(f"computes in {kind}, but the library computes on int8: quantize the model")

    def _is_passenger(self, unit: Unit) -> bool:
        return unit.kind in TABLE and TABLE[unit.kind].is_passenger(unit.anchor)

    def _units_of(self, program: ProgramView) -> Units:
        found = self._units.get(program.graph)
        if found is None:
            found = self._units[program.graph] = Units(program, RULES)
            found.settle(self._obstacle)
        return found

    def _obstacle(self, unit: Unit) -> str | None:
        """The reason why the library does not compute a unit."""
        if any(self.is_left_out(call.operator) for call in unit.inner):
            return "left out by the option leave_out"
        if any(activation_obstacle(result.quantization) for result in unit.results):
            return activation_obstacle(unit.results[0].quantization)
        if unit.kind == REQUANTIZE:
            operand = unit.operands[0]
            fixed = operand.integers is None or operand.integers.is_constant
            return "it is constant" if fixed else activation_obstacle(operand.quantization)
        if unit.kind == FUNCTION:
            return some_elements(unit.anchor)
        return _first_reason((*TABLE.common, *TABLE[unit.kind].constraints), unit.anchor)


def _first_reason(constraints: Collection[Callable[[Call], str | None]], call: Call) -> str | None:
    return next((reason for constraint in constraints if (reason := constraint(call)) is not None), None)
