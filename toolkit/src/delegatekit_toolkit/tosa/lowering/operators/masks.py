"""Booleans: comparisons of numbers, logic, and selection between two tensors. For devices that are not narrow."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.support import Constraint, row
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

from ..device import Device
from ..limits import CHOICES, COMMON_RANK, COMPARISONS, COMPUTED_MASKS
from ..program import LowerCall, ProgramBuilder
from ..values import Result, Value
from .common import Rows, common_rank, needs, ranked
from .elementwise import comparable
from .softmax import NOTHING, SOFTMAX, masked_softmax, row_obstacle

#: Name -> the operator of TOSA, and True if its result must be negated.
_COMPARISONS: Final[dict[str, tuple[Operator, bool]]] = {
    "eq": (Equal(), False),
    "ne": (Equal(), True),
    "gt": (Greater(), False),
    "le": (Greater(), True),
    "ge": (GreaterEqual(), False),
    "lt": (GreaterEqual(), True),
}


# -- constraints -----------------------------------------------------------------------------------------------------


def chooses(device: Device) -> Constraint:
    """The constraint of a selection: a narrow device only masks numbers for a softmax."""
    reasons = device.lacks(CHOICES), device.lacks(COMPUTED_MASKS)

    def check(call: Call) -> str | None:
        readers = call.node.users
        if len(readers) == 1 and call.users and call.users[0].operator == SOFTMAX:
            return (None if call["condition"].is_constant else reasons[1]) or hides_scores(call)
        if reasons[0] is not None:
            return reasons[0]
        return common_rank(call)

    softmax = "front of a softmax{}: where a {}mask is set, a constant that is negligible beside the others."
    check.__doc__ = (
        f"In {softmax.format(' only', 'constant ')}"
        if reasons[0]
        else f"Numbers, of at most 4 axes if operands have several shapes; in {softmax.format('', '')}"
    )
    return check


def hides_scores(call: Call) -> str | None:
    """The fill value is a constant that is negligible beside the others."""
    (softmax,) = call.users
    scores: Operand = call["other"]
    data = call["self"].constant
    if data is None or data.numel() != 1:
        return "its fill value is computed"
    if scores.integers is None:
        return "its scores are not quantized"
    found = scores.quantization
    if found is not None and not float(data) <= (found.minimum - found.zero_point) * found.scale - NOTHING:
        return f"{float(data)} is not small enough: a softmax would not ignore it"
    shape = call.result.shape
    if shape != scores.shape:
        return f"its mask changes the shape of the scores from {scores.shape} to {shape}"
    if len(shape) > COMMON_RANK:
        return f"a mask over {len(shape)} axes: {COMMON_RANK} is the maximum"
    return row_obstacle(shape, softmax["dim"])


# -- lowerings -------------------------------------------------------------------------------------------------------


def _binary(b: ProgramBuilder, kind: Operator, left: Tensor, right: Tensor, name: str = "") -> Tensor:
    shape = [max(pair) for pair in zip(left.shape, right.shape, strict=True)]
    left, right = _repeated(b, left, shape), _repeated(b, right, shape)
    return b.emit(kind, (left, right), shape, DType.BOOL, name)


def _opposite(b: ProgramBuilder, truth: Tensor) -> Tensor:
    return b.emit(LogicalNot(), (truth,), truth.shape, DType.BOOL, "opposite")


def _comparison(name: str) -> LowerCall:
    kind, turned = _COMPARISONS[name]

    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        (left, right), order = comparable(b, call)
        told = _binary(b, kind, left, right)
        return Value(_opposite(b, told) if turned else told, order)

    return lower


def _comparison_with_number(name: str) -> LowerCall:
    """PyTorch computes for which integers it holds: for those between two, or for all others."""
    compare: Callable[[Any, Any], Any] = getattr(operator, name)

    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        operand = call["self"]
        value, scale = b.integers(operand), b.scale(operand)
        lowest, highest = INTEGER_RANGES[scale.dtype]
        points = (torch.arange(lowest, highest + 1) - scale.zero_point).float() * scale.scale
        truths = compare(points, call["other"]).numpy()
        (places,) = np.nonzero(~truths if name == "ne" else truths)
        first, last = (lowest + int(places[0]), lowest + int(places[-1])) if len(places) else (highest + 1, highest)
        side = b.rescaled(value.tensor, [1.0], name="operand")
        told = _binary(b, GreaterEqual(), side, b.single(first, side.shape), "reached")
        if last < highest:
            passed = _binary(b, Greater(), side, b.single(last, side.shape), "passed")
            told = _binary(b, LogicalAnd(), told, _opposite(b, passed), "between")
        return Value(_opposite(b, told) if name == "ne" else told, value.order)

    return lower


def _logic(kind: Operator) -> LowerCall:
    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        rank = call.result.rank
        left, right = (ranked(b, b.integers(call[name]), rank) for name in ("self", "other"))
        order = max((left, right), key=lambda value: (value.tensor.data is None, value.tensor.size)).order
        return Value(_binary(b, kind, b.stored(left, order), b.stored(right, order)), order)

    return lower


def _not(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value = b.integers(call["self"])
    return Value(b.emit(LogicalNot(), (value.tensor,), value.tensor.shape, DType.BOOL), value.order)


def _chosen(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """One value where the condition holds, the other elsewhere, both as integers of the result."""
    if any(reader.operator == SOFTMAX for reader in call.users):
        return masked_softmax(b, call, result)
    rank = call.result.rank
    condition = ranked(b, b.integers(call["condition"]), rank)
    sides = [ranked(b, _side(b, call[name], result), rank) for name in ("self", "other")]
    leader = max((*sides, condition), key=lambda value: (value.tensor.data is None, value.tensor.size))
    operands = [b.stored(value, leader.order) for value in (condition, *sides)]
    shape = [call.result.shape[axis] for axis in leader.order]
    operands = [_repeated(b, tensor, shape) for tensor in operands]
    made = b.emit(Select(), operands, shape, result.scale.dtype)
    return Value(b.clamped(made, result), leader.order)


def _repeated(b: ProgramBuilder, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """A constant for more than four axes, expanded: a compiler in use would read past its end."""
    if tensor.data is None or len(shape) <= COMMON_RANK:
        return tensor
    return b.graph.constant(np.broadcast_to(tensor.data, shape), tensor.dtype, tensor.name)


def _side(b: ProgramBuilder, operand: Operand, result: Result) -> Value:
    """A quantized tensor, or a constant, as integers of the result."""
    after = result.scale
    if operand.integers is not None:
        value = b.integers(operand)
        return Value(b.requantized(value.tensor, b.scale(operand), Result(after)), value.order)
    numbers = b.numbers(operand)
    assert numbers is not None
    integers = np.clip(np.rint(numbers / after.scale) + after.zero_point, *INTEGER_RANGES[after.dtype])
    return Value.dense(b.graph.constant(integers, after.dtype, f"{b.name}.constant"))


def rows(device: Device) -> Rows:
    """The rows for a device. Operators that return booleans need no quantize after them."""
    constraints = needs(device, COMPARISONS) or (common_rank,)
    first = (*constraints, types_of("self", "bool"))
    both = (*first, types_of("other", "bool"))
    compared = (row(f"{name}.Tensor", _comparison(name), *constraints, truth=True) for name in _COMPARISONS)
    with_number = (
        row(f"{name}.Scalar", _comparison_with_number(name), *constraints, truth=True) for name in _COMPARISONS
    )
    two: dict[str, Any] = {"truth": True, "masks": ("self", "other")}
    return (
        *compared,
        *with_number,
        row("logical_and.default bitwise_and.Tensor", _logic(LogicalAnd()), *both, **two),
        row("logical_or.default bitwise_or.Tensor", _logic(LogicalOr()), *both, **two),
        row("logical_xor.default bitwise_xor.Tensor", _logic(LogicalXor()), *both, **two),
        row("logical_not.default bitwise_not.default", _not, *first, truth=True, masks=("self",)),
        row("where.self", _chosen, chooses(device), float_constants=True, masks=("condition",)),
    )
