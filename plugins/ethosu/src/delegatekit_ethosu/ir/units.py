"""Cuts a quantized program into units: what lies between dequantizes and a quantize becomes operations on integers.

A unit is an operator with the dequantizes of its operands, perhaps a clamp behind it, and the quantizes of its result;
or an operator that gives truth values, with its dequantizes; or a softmax with the selection that hides some of its
numbers; or a function of single values, that is any number of pointwise operators whose only input is one quantized
tensor; or a quantize right behind a dequantize. What lies in no unit computes on numbers in float, and stays outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from delegatekit_api import ProgramView, operator_name
from delegatekit_api.quantization import DEQUANTIZE, QUANTIZE, Quantization, quantization_of

if TYPE_CHECKING:
    from torch.fx import Node

#: Operators that saturation or two bounds replace: they may stand between another operator and its quantize.
CLAMPS: Final = frozenset({"aten.relu.default", "aten.hardtanh.default", "aten.clamp.default"})

#: A softmax behind what hides some of its numbers.
SELECTION: Final = "aten.where.self"
SOFTMAX: Final = "aten._softmax.default"

#: Functions without steps, and with bends at 0 only: 512 straight lines are enough for int16.
SMOOTH: Final = frozenset(
    f"aten.{name}.default"
    for name in (
        *("sigmoid", "tanh", "silu", "gelu", "mish", "softplus", "log_sigmoid", "elu", "celu", "exp", "expm1", "erf"),
        *("atan", "asinh"),
    )
)

#: Why other functions are refused.
SMOOTH_ONLY: Final = "for int16 the NPU has tables of smooth functions only"

#: Operators that give truth values.
TRUTHS: Final = frozenset(
    {f"aten.{name}.{kind}" for name in ("eq", "ne", "gt", "ge", "lt", "le") for kind in ("Tensor", "Scalar")}
    | {f"aten.logical_{name}.default" for name in ("and", "or", "xor", "not")}
    | {f"aten.bitwise_{name}.Tensor" for name in ("and", "or", "xor")}
    | {"aten.bitwise_not.default"}
)

#: The kinds of units that are no operator's.
FUNCTION: Final = "function of single values"
REQUANTIZE: Final = "quantize of a dequantize"

#: The integers that activations can be: their type and range.
_INT8: Final = (torch.int8, -128, 127)
_INT16: Final = (torch.int16, -(1 << 15), (1 << 15) - 1)


@dataclass(frozen=True)
class Unit:
    """Nodes that stand or fall together.

    `anchor` computes; `kind` is its operator's name, or FUNCTION or REQUANTIZE, whose anchor is the last operator (or
    the dequantize); that of a masked softmax is the selection. `operands` are the dequantizes that it reads, constants'
    included; `inner` are all operators, the clamp included; `results` the quantizes, none of truth values.
    """

    kind: str
    anchor: Node
    operands: tuple[Node, ...]
    inner: tuple[Node, ...]
    results: tuple[Node, ...]

    @property
    def clamp(self) -> Node | None:
        """The clamp behind the operator."""
        last = self.inner[-1] if self.kind not in (FUNCTION, REQUANTIZE) and len(self.inner) > 1 else None
        return None if last is None or operator_name(last) == SOFTMAX else last

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes."""
        return tuple(dict.fromkeys((*self.operands, *self.inner, *self.results)))


def activation_obstacle(quantization: Quantization | None) -> str | None:
    """Why a tensor of activations is not one for the NPU: it wants int8, or symmetric int16, with one scale."""
    if quantization is None:
        return "scales are found in each call: the NPU wants them known beforehand"
    found = (quantization.dtype, quantization.minimum, quantization.maximum)
    whole = quantization.axis is None and quantization.group is None
    if whole and found == _INT16 and not quantization.is_symmetric:
        return f"int16 with the zero point {quantization.zero_point}: the NPU wants 0"
    if whole and found in (_INT8, _INT16):
        scale = float(quantization.scale)
        return None if 0 < scale < math.inf else f"of scale {scale}: the NPU wants a finite one above 0"
    kind = str(quantization.dtype).removeprefix("torch.")
    channels = "" if whole else ", a scale for each channel"
    wanted = f"int8, {_INT8[1]} to {_INT8[2]}, or int16, {_INT16[1]} to {_INT16[2]}"
    return f"{kind}, {found[1]} to {found[2]}{channels}: the NPU wants {wanted}, with one scale"


def is_clamp(inner: Sequence[Node]) -> bool:
    """Whether a function of single values is nothing but two bounds."""
    return len(inner) == 1 and operator_name(inner[0]) in CLAMPS


class Units:
    """The units of a program, and for each operator in none of them the reason.

    `takes` says which operators can be anchors; `pointwise` which are functions of single values.
    """

    def __init__(self, view: ProgramView, takes: Collection[str], pointwise: Collection[str]) -> None:
        self.reasons: dict[Node, str] = {}
        self._of: dict[Node, list[Unit]] = {}
        self._view = view
        self._takes = takes
        self._pointwise = pointwise
        self._order = {node: place for place, node in enumerate(view.graph.nodes)}
        self.units: list[Unit] = []
        seen: set[Node] = set()
        for node in view.graph.nodes:
            if operator_name(node) in QUANTIZE and node.args[0] not in seen:
                seen.add(node.args[0])
                found = self._find(node)
                if isinstance(found, str):
                    self.reasons.update(
                        dict.fromkeys((item for item in node.args[0].users if _is_quantize(item)), found)
                    )
                else:
                    self.units.append(found)
            elif operator_name(node) in TRUTHS and node.meta["val"].dtype is torch.bool:
                self.units.append(Unit(operator_name(node), node, _dequantizes(node), (node,), ()))
        self._index()

    def of(self, node: Node) -> list[Unit]:
        """The units that a node belongs to: a dequantize may be read by several."""
        return self._of.get(node, [])

    def drop(self, reasons: Mapping[int, str]) -> None:
        """Remove units, by their place in the list, because of `reasons`."""
        for place, reason in reasons.items():
            for node in self.units[place].nodes:
                self.reasons.setdefault(node, reason)
        self.units = [unit for place, unit in enumerate(self.units) if place not in reasons]
        self._index()

    def settle(self, obstacle: Callable[[Unit], str | None]) -> None:
        """Drop the units that have an obstacle, and those that share a dequantize with somebody outside any unit."""
        self.drop({place: reason for place, unit in enumerate(self.units) if (reason := obstacle(unit)) is not None})
        while True:
            lost = {
                place: reason for place, unit in enumerate(self.units) if (reason := self._shared(unit)) is not None
            }
            if not lost:
                return
            self.drop(lost)

    def _shared(self, unit: Unit) -> str | None:
        """A delegate gives integers only: who reads its numbers must be in a unit, too."""
        for operand in unit.operands:
            strangers = [user for user in operand.users if not self.of(user)]
            if strangers:
                return f"{strangers[0].name}, which is not for the NPU, reads {operand.name}, too"
        return None

    def _index(self) -> None:
        self._of = {}
        for unit in self.units:
            for node in unit.nodes:
                self._of.setdefault(node, []).append(unit)

    def _find(self, quantize: Node) -> Unit | str:
        last: Node = quantize.args[0]  # type: ignore[assignment]
        results = tuple(last.users)
        reason = activation_obstacle(quantization_of(quantize, self._view))
        if reason is not None:
            return reason
        if last.op != "call_function":
            return "the program's numbers become integers outside"
        if operator_name(last) in DEQUANTIZE:
            return Unit(REQUANTIZE, last, (last,), (), tuple(user for user in results if _is_quantize(user)))
        reader = next((user for user in results if not _is_quantize(user)), None)
        if reader is not None:
            what = "it is a result" if reader.op == "output" else f"{reader.name} reads it"
            return self._refuse(last, f"{what} before it is quantized")
        region = self._function(last)
        if isinstance(region, str):
            return self._refuse(last, region)
        if region is not None:
            return Unit(FUNCTION, last, *region, results)
        anchor = last
        inner: tuple[Node, ...] = (last,)
        before: Any = last.args[0] if operator_name(last) in CLAMPS | {SOFTMAX} else None
        if before is not None and before.op == "call_function" and _is_one_with(before, last):
            if len(before.users) > 1:
                return self._refuse(last, f"its input {before.name} is not quantized, and others read it")
            anchor, inner = before, (before, last)
        name = operator_name(anchor)
        if name not in self._takes:
            if name in self._pointwise and self._is_wide(anchor):
                return self._refuse(anchor, SMOOTH_ONLY)
            reason = f"{name} has no lowering for the NPU"
            # What could be one: its operand is not quantized, which is said of the operator itself.
            return reason if name in self._pointwise else self._refuse(anchor, reason)
        return Unit(name, anchor, _dequantizes(anchor), inner, results)

    def _is_wide(self, node: Node) -> bool:
        """Whether an operand is int16."""
        found = (quantization_of(item, self._view) for item in _dequantizes(node))
        return any(item is not None and item.dtype is torch.int16 for item in found)

    def _refuse(self, node: Node, reason: str) -> str:
        self.reasons.setdefault(node, reason)
        return reason

    def _function(self, last: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]] | str | None:
        """The dequantizes of one tensor and the pointwise operators that make `last` of it alone; else None.

        In words, why the NPU does not take that tensor. They become a table; for int16, whose tables are interpolated,
        only bounds and smooth functions do.
        """
        inner: set[Node] = set()
        operands: set[Node] = set()
        numbers: set[Node] = set()
        shape = last.meta["val"].shape
        waiting = [last]
        while waiting:
            node = waiting.pop()
            if self._view.is_constant(node):
                if node.meta["val"].numel() != 1:
                    return None
            elif operator_name(node) in DEQUANTIZE:
                (operands if self._single(node) is None else numbers).add(node)
            elif operator_name(node) not in self._pointwise or not _is_float32(node, shape):
                return None
            else:
                inner.add(node)
                waiting += [item for item in node.all_input_nodes if item not in inner]
        if any(user not in inner for node in inner if node is not last for user in node.users):
            return None
        sources = {(node.args[0], node.args[1:]) for node in operands}
        if len(sources) != 1 or any(node.meta["val"].shape != shape for node in operands):
            return None
        first = next(iter(operands))
        if self._view.is_constant(first.args[0]):
            return f"{first.name} is constant: what is computed of it alone stays outside"
        found = quantization_of(first, self._view)
        reason = activation_obstacle(found)
        if reason is not None:
            return f"{first.name} is {reason}"
        assert found is not None
        if found.dtype is torch.int16 and (len(inner) > 1 or operator_name(last) not in CLAMPS | SMOOTH):
            return None
        return tuple(self._sorted(operands | numbers)), tuple(self._sorted(inner))

    def _sorted(self, nodes: Collection[Node]) -> list[Node]:
        return sorted(nodes, key=self._order.__getitem__)

    def _single(self, dequantize: Node) -> float | None:
        """The number that a dequantize makes of a constant with one element."""
        data = self._view.constant(dequantize.args[0])
        found = quantization_of(dequantize, self._view)
        if data is None or data.numel() != 1 or found is None or found.axis is not None:
            return None
        return float((data.item() - found.zero_point) * found.scale)


def _dequantizes(node: Node) -> tuple[Node, ...]:
    """The dequantizes among a node's operands."""
    return tuple(dict.fromkeys(item for item in node.all_input_nodes if operator_name(item) in DEQUANTIZE))


def _is_one_with(before: Node, last: Node) -> bool:
    """Whether an operator and the clamp behind it, or a selection and the softmax, are one unit."""
    if operator_name(last) == SOFTMAX:
        return operator_name(before) == SELECTION
    return operator_name(before) not in DEQUANTIZE


def _is_float32(node: Node, shape: Sequence[int]) -> bool:
    value = node.meta["val"]
    return value.dtype is torch.float32 and value.shape == shape


def _is_quantize(node: Node) -> bool:
    return operator_name(node) in QUANTIZE
