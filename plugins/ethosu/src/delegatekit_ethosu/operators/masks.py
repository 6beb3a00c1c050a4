"""Truth values: comparisons of numbers, logic, and the choice between two tensors. For the Ethos-U85."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from delegatekit_api import argument, operator_name
from delegatekit_api.quantization import DEQUANTIZE
from delegatekit_toolkit.tosa import (
    DType,
    Equal,
    Greater,
    GreaterEqual,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogicalXor,
    Operator,
    Select,
    Tensor,
)
from delegatekit_toolkit.tosa.types import INTEGER_RANGES

from ..ir.builder import Emitter, Lowering, Result
from ..ir.units import SOFTMAX
from ..ir.values import Value
from ..limits import COMMON_RANK
from .elementwise import comparable, ranked
from .softmax import masked_softmax

if TYPE_CHECKING:
    from torch.fx import Node

#: Name -> the operator of TOSA, and whether it tells the opposite.
_COMPARISONS: Final[dict[str, tuple[Operator, bool]]] = {
    "eq": (Equal(), False),
    "ne": (Equal(), True),
    "gt": (Greater(), False),
    "le": (Greater(), True),
    "ge": (GreaterEqual(), False),
    "lt": (GreaterEqual(), True),
}


def _binary(b: Lowering, kind: Operator, left: Tensor, right: Tensor, name: str = "") -> Tensor:
    shape = [max(pair) for pair in zip(left.shape, right.shape, strict=True)]
    left, right = _repeated(b, left, shape), _repeated(b, right, shape)
    return b.emit(kind, (left, right), shape, DType.BOOL, name)


def _opposite(b: Lowering, truth: Tensor) -> Tensor:
    return b.emit(LogicalNot(), (truth,), truth.shape, DType.BOOL, "opposite")


def _comparison(name: str) -> Emitter:
    kind, turned = _COMPARISONS[name]

    def lower(b: Lowering, node: Node, result: Result) -> Value:
        (left, right), order = comparable(b, node)
        told = _binary(b, kind, left, right)
        return Value(_opposite(b, told) if turned else told, order)

    return lower


def _comparison_with_number(name: str) -> Emitter:
    """PyTorch tells for which integers it holds: for those between two, or for all others."""
    compare: Callable[[Any, Any], Any] = getattr(operator, name)

    def lower(b: Lowering, node: Node, result: Result) -> Value:
        operand = argument(node, "self")
        value, scale = b.integers(operand), b.scale(operand)
        lowest, highest = INTEGER_RANGES[scale.dtype]
        points = (torch.arange(lowest, highest + 1) - scale.zero_point).float() * scale.scale
        truths = compare(points, argument(node, "other")).numpy()
        (places,) = np.nonzero(~truths if name == "ne" else truths)
        first, last = (lowest + int(places[0]), lowest + int(places[-1])) if len(places) else (highest + 1, highest)
        side = b.rescaled(value.tensor, [1.0], name="operand")
        told = _binary(b, GreaterEqual(), side, b.single(first, side.shape), "reached")
        if last < highest:
            passed = _binary(b, Greater(), side, b.single(last, side.shape), "passed")
            told = _binary(b, LogicalAnd(), told, _opposite(b, passed), "between")
        return Value(_opposite(b, told) if name == "ne" else told, value.order)

    return lower


def _logic(kind: Operator) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        rank = len(node.meta["val"].shape)
        left, right = (ranked(b, b.integers(argument(node, name)), rank) for name in ("self", "other"))
        order = max((left, right), key=lambda value: (value.tensor.data is None, value.tensor.size)).order
        return Value(_binary(b, kind, b.stored(left, order), b.stored(right, order)), order)

    return lower


def _not(b: Lowering, node: Node, result: Result) -> Value:
    value = b.integers(argument(node, "self"))
    return Value(b.emit(LogicalNot(), (value.tensor,), value.tensor.shape, DType.BOOL), value.order)


def _chosen(b: Lowering, node: Node, result: Result) -> Value:
    """The one where the condition holds, the other elsewhere, both as integers of the result."""
    if any(operator_name(reader) == SOFTMAX for reader in node.users):
        return masked_softmax(b, node, result)
    rank = len(node.meta["val"].shape)
    condition = ranked(b, b.integers(argument(node, "condition")), rank)
    sides = [ranked(b, _side(b, argument(node, name), result), rank) for name in ("self", "other")]
    leader = max((*sides, condition), key=lambda value: (value.tensor.data is None, value.tensor.size))
    operands = [b.stored(value, leader.order) for value in (condition, *sides)]
    shape = [node.meta["val"].shape[axis] for axis in leader.order]
    operands = [_repeated(b, tensor, shape) for tensor in operands]
    made = b.emit(Select(), operands, shape, result.scale.dtype)
    return Value(b.clamped(made, result), leader.order)


def _repeated(b: Lowering, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A constant for more than four axes as it is used: Vela (5.1) would read on behind it."""
    if tensor.data is None or len(shape) <= COMMON_RANK:
        return tensor
    return b.graph.constant(np.broadcast_to(tensor.data, shape), tensor.dtype, tensor.name)


def _side(b: Lowering, node: Node, result: Result) -> Value:
    """A quantized tensor, or a constant, as integers of the result."""
    after = result.scale
    if operator_name(node) in DEQUANTIZE:
        value = b.integers(node)
        return Value(b.requantized(value.tensor, b.scale(node), Result(after)), value.order)
    numbers = b.numbers(node)
    assert numbers is not None
    integers = np.clip(np.rint(numbers / after.scale) + after.zero_point, *INTEGER_RANGES[after.dtype])
    return Value.dense(b.graph.constant(integers, after.dtype, f"{b.name}.constant"))


EMITTERS: dict[str, Emitter] = {
    **{f"aten.{name}.Tensor": _comparison(name) for name in _COMPARISONS},
    **{f"aten.{name}.Scalar": _comparison_with_number(name) for name in _COMPARISONS},
    "aten.logical_and.default": _logic(LogicalAnd()),
    "aten.logical_or.default": _logic(LogicalOr()),
    "aten.logical_xor.default": _logic(LogicalXor()),
    "aten.logical_not.default": _not,
    "aten.bitwise_and.Tensor": _logic(LogicalAnd()),
    "aten.bitwise_or.Tensor": _logic(LogicalOr()),
    "aten.bitwise_xor.Tensor": _logic(LogicalXor()),
    "aten.bitwise_not.default": _not,
    "aten.where.self": _chosen,
}
