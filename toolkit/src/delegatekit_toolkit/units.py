"""Cuts a quantized program into units: the calls between dequantizes and a quantize become integer operations.

A unit is an operator with the dequantizes of its operands, perhaps a clamp after it, and the quantizes of its result;
or an operator that returns booleans, with its dequantizes; or two operators that the backend computes as one; or any
number of pointwise operators whose only input is one quantized tensor (a lookup table, say); or a quantize that
directly follows a dequantize. Calls outside units compute on float numbers, and stay outside the delegate.

For backends that compute on integers. One that also has floating-point operators takes them for what is in no unit
(`Units.settle` with `shares`), or decides operator by operator, and needs no units.

>>> import torch.ao.quantization.fx._decomposed
>>> from delegatekit_toolkit.testing import view_of
>>> def rounded(x):
...     integers = torch.ops.quantized_decomposed.quantize_per_tensor(x, 0.1, 0, -128, 127, torch.int8)
...     return torch.ops.quantized_decomposed.dequantize_per_tensor(integers, 0.1, 0, -128, 127, torch.int8)
...
>>> program = view_of(lambda x: rounded(torch.relu(rounded(x) + rounded(-x))), torch.ones(3))
>>> rules = UnitRules(
...     "the NPU",
...     anchors={"aten.add.Tensor"},
...     activation=lambda quantization: None if quantization else "of a scale that is found in each call",
...     clamps={"aten.relu.default"},
... )
>>> units = Units(program, rules)
>>> units.settle(lambda unit: None)  # what the support table says of the unit's anchor
>>> [(unit.kind, unit.clamp, len(unit.operands)) for unit in units.units]
[('aten.add.Tensor', aten.relu.default (relu) in the top module..., 2)]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_api import Call, Operand, ProgramView
from delegatekit_api.nodes import operator_name
from delegatekit_api.schemes import DEQUANTIZE, QUANTIZE, Quantization

if TYPE_CHECKING:
    from torch.fx import Node

#: The kinds of units that do not represent one operator.
FUNCTION: Final = "function of single values"
REQUANTIZE: Final = "quantize of a dequantize"


def _nothing(call: Call) -> str | None:
    return None


def _any_function(calls: Sequence[Call], quantization: Quantization) -> bool:
    return True


@dataclass(frozen=True)
class UnitRules:
    """A backend's rules for forming units. Operators are names: "aten.add.Tensor"."""

    #: The name of the hardware in messages: "the NPU".
    device: str
    #: Operators that form a unit by themselves.
    anchors: Collection[str]
    #: The reason why a tensor with this quantization does not fit the device; None if it does. The argument is None for
    #: a tensor whose scale is computed in each call.
    activation: Callable[[Quantization | None], str | None]
    #: Operators that saturation, or two bounds, replace: they may occur between another operator and its quantize.
    clamps: Collection[str] = ()
    #: Operator -> the preceding one that is computed with it as one unit: {softmax: the selection that masks scores}.
    pairs: Mapping[str, str] = field(default_factory=dict)
    #: Operators of which any number, on one quantized tensor, form a unit of kind FUNCTION.
    pointwise: Collection[str] = ()
    #: True if these pointwise operators, on a tensor of this quantization, form such a unit.
    is_function: Callable[[Sequence[Call], Quantization], bool] = _any_function
    #: The reason why a pointwise operator is no such unit, if it is more specific than that it has no lowering.
    function_obstacle: Callable[[Call], str | None] = _nothing
    #: Operators that return booleans: no quantize follows them.
    truths: Collection[str] = ()


@dataclass(frozen=True)
class Unit:
    """Calls that are lowered together or not at all."""

    #: The operator of the anchor, or FUNCTION or REQUANTIZE.
    kind: str
    #: The call that computes: of a pair the first one, of a FUNCTION the last, of a REQUANTIZE the dequantize.
    anchor: Call
    #: The dequantized tensors that it reads, constants included.
    operands: tuple[Operand, ...]
    #: All calls that compute, the clamp included.
    inner: tuple[Call, ...]
    #: The quantizes of its result; none for booleans.
    results: tuple[Call, ...]
    #: The clamp after the operator, if there is one.
    clamp: Call | None = None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of all calls, those of the dequantizes first."""
        return tuple(dict.fromkeys(item.node for part in (self.operands, self.inner, self.results) for item in part))


class Units:
    """The units of a program, and the reason for each operator in none of them."""

    def __init__(self, program: ProgramView, rules: UnitRules) -> None:
        #: Node -> a specific reason why it is in no unit.
        self.reasons: dict[Node, str] = {}
        self.units: list[Unit] = []
        self._of: dict[Node, list[Unit]] = {}
        self._program: Final = program
        self._rules: Final = rules
        self._order: Final = {node: place for place, node in enumerate(program.graph.nodes)}
        seen: set[Any] = set()
        for node in program.graph.nodes:
            name = operator_name(node)
            if name in QUANTIZE and node.args[0] not in seen:
                seen.add(node.args[0])
                found = self._find(node)
                if isinstance(found, str):
                    self.reasons.update(dict.fromkeys(filter(_is_quantize, node.args[0].users), found))
                else:
                    self.units.append(found)
            elif name in rules.truths and node.meta["val"].dtype is torch.bool:
                call = Call(node, program)
                self.units.append(Unit(name, call, _dequantized(call), (call,), ()))
        self._index()

    def of(self, node: Node) -> list[Unit]:
        """The units of a node: several may read a dequantize."""
        return self._of.get(node, [])

    def settle(self, obstacle: Callable[[Unit], str | None], *, shares: bool = False) -> None:
        """Drop the units that have an obstacle, and those that share a dequantize with a reader outside any unit.

        With `shares` the backend takes such readers, too, and lowers the dequantize for them.
        """
        self._drop({place: reason for place, unit in enumerate(self.units) if (reason := obstacle(unit)) is not None})
        if shares:
            return
        while True:
            lost = {
                place: reason for place, unit in enumerate(self.units) if (reason := self._shared(unit)) is not None
            }
            if not lost:
                return
            self._drop(lost)

    def _drop(self, reasons: Mapping[int, str]) -> None:
        """Remove units, by their index, for these reasons."""
        for place, reason in reasons.items():
            for node in self.units[place].nodes:
                self.reasons.setdefault(node, reason)
        self.units = [unit for place, unit in enumerate(self.units) if place not in reasons]
        self._index()

    def _shared(self, unit: Unit) -> str | None:
        """A delegate returns integers only: every reader of its numbers must be in a unit, too."""
        for operand in unit.operands:
            strangers = [user for user in operand.node.users if not self.of(user)]
            if strangers:
                return f"{strangers[0].name}, which is not for {self._rules.device}, reads {operand.name}, too"
        return None

    def _index(self) -> None:
        self._of = {}
        for unit in self.units:
            for node in unit.nodes:
                self._of.setdefault(node, []).append(unit)

    def _calls(self, nodes: Collection[Node]) -> tuple[Call, ...]:
        """The calls of nodes, in the order of the program."""
        return tuple(Call(node, self._program) for node in sorted(nodes, key=self._order.__getitem__))

    def _find(self, quantize: Node) -> Unit | str:
        """The unit that ends in a quantize and in all others of the same numbers; or the reason why there is none."""
        last: Node = quantize.args[0]  # type: ignore[assignment]
        reason = self._rules.activation(Call(quantize, self._program).quantization)
        if reason is not None:
            return reason
        if last.op != "call_function":
            return "the program's border: its numbers are quantized outside the delegate"
        call, results = Call(last, self._program), self._calls(list(filter(_is_quantize, last.users)))
        if call.operator in DEQUANTIZE:
            return Unit(REQUANTIZE, call, (call.result,), (), results)
        reader = next((user for user in last.users if not _is_quantize(user)), None)
        if reader is not None:
            what = "it is a result" if reader.op == "output" else f"{reader.name} reads it"
            return self._refuse(last, f"{what} before it is quantized")
        function = self._function(call, results)
        if isinstance(function, str):
            return self._refuse(last, function)
        return self._operator(call, results) if function is None else function

    def _operator(self, last: Call, results: tuple[Call, ...]) -> Unit | str:
        """The unit of one operator, a clamp after it, or a pair."""
        rules, anchor = self._rules, last
        inner: tuple[Call, ...] = (last,)
        is_clamp = last.operator in rules.clamps
        before = last.operands[0].producer if last.operands and (is_clamp or last.operator in rules.pairs) else None
        if before is not None and self._is_one_with(before, last):
            if len(before.node.users) > 1:
                return self._refuse(last.node, f"its input {before.node.name} is not quantized, and others read it")
            anchor, inner = before, (before, last)
        if anchor.operator not in rules.anchors:
            is_pointwise = anchor.operator in rules.pointwise
            obstacle = rules.function_obstacle(anchor) if is_pointwise else None
            reason = obstacle or f"{anchor.operator} has no lowering for {rules.device}"
            # Candidates whose operand is not quantized, which is reported for the operator itself.
            return reason if is_pointwise and obstacle is None else self._refuse(anchor.node, reason)
        clamp = last if is_clamp and anchor != last else None
        return Unit(anchor.operator, anchor, _dequantized(anchor), inner, results, clamp)

    def _is_one_with(self, before: Call, last: Call) -> bool:
        """True if an operator and the clamp after it, or a pair, form one unit."""
        partner = self._rules.pairs.get(last.operator)
        return before.operator not in DEQUANTIZE if partner is None else before.operator == partner

    def _refuse(self, node: Node, reason: str) -> str:
        self.reasons.setdefault(node, reason)
        return reason

    def _function(self, last: Call, results: tuple[Call, ...]) -> Unit | str | None:
        """The unit of pointwise operators that compute `last` from one tensor alone; None if there is none.

        If the device does not take that tensor, the reason in words.
        """
        inner: set[Node] = set()
        operands: set[Node] = set()
        numbers: set[Node] = set()
        shape = last.node.meta["val"].shape
        waiting = [last.node]
        while waiting:
            node = waiting.pop()
            if self._program.is_constant(node):
                if node.meta["val"].numel() != 1:
                    return None
            elif operator_name(node) in DEQUANTIZE:
                (numbers if self._is_number(node) else operands).add(node)
            elif operator_name(node) not in self._rules.pointwise or not _is_float32(node, shape):
                return None
            else:
                inner.add(node)
                waiting += [item for item in node.all_input_nodes if item not in inner]
        if any(user not in inner for node in inner if node is not last.node for user in node.users):
            return None
        sources = {(node.args[0], node.args[1:]) for node in operands}
        if len(sources) != 1 or any(node.meta["val"].shape != shape for node in operands):
            return None
        first = self._program.operand(next(iter(operands)))
        if first.integers is not None and first.integers.is_constant:
            return f"{first.name} is constant: what is computed from it alone stays outside"
        found = first.quantization
        reason = self._rules.activation(found)
        if reason is not None:
            return f"{first.name} is {reason}"
        calls = self._calls(inner)
        assert found is not None
        if not self._rules.is_function(calls, found):
            return None
        read = tuple(call.result for call in self._calls(operands | numbers))
        return Unit(FUNCTION, last, read, calls, results)

    def _is_number(self, dequantize: Node) -> bool:
        """True if a dequantize turns a constant into one number, known now."""
        operand = self._program.operand(dequantize)
        data = None if operand.integers is None else operand.integers.constant
        found = operand.quantization
        return data is not None and data.numel() == 1 and found is not None and found.axis is None


def _dequantized(call: Call) -> tuple[Operand, ...]:
    """The operands of a call that come from a dequantize."""
    return tuple(operand for operand in call.operands if operator_name(operand.node) in DEQUANTIZE)


def _is_float32(node: Node, shape: Sequence[int]) -> bool:
    value = node.meta["val"]
    return value.dtype is torch.float32 and value.shape == shape


def _is_quantize(node: Node) -> bool:
    return operator_name(node) in QUANTIZE
