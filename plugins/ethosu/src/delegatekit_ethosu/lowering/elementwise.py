"""Arithmetic of two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from delegatekit_api import argument

from ..layout import Value
from ..tosa import Add, DType, Maximum, Minimum, Mul, Operator, Sub, Tensor
from .context import Emitter, Lowering, Result, Scale

if TYPE_CHECKING:
    from torch.fx import Node

#: Sums of two int8 have so many bits below the larger operand's step.
_HEADROOM = 1 << 20


def _sum(operator: Operator) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        """Both operands in steps that are a part of the larger one's, and the sum in steps of the result."""
        (left, right), scales, order = _operands(b, node)
        step = 2 * max(scale.scale for scale in scales) / _HEADROOM
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        sums = b.emit(operator, sides, _broadcast(left, right), DType.INT32, "sum")
        return Value(b.stored_as(sums, [step], result), order)

    return lower


def _product(b: Lowering, node: Node, result: Result) -> Value:
    (left, right), scales, order = _operands(b, node)
    sides = [
        b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
        for tensor, scale in zip((left, right), scales, strict=True)
    ]
    products = b.emit(Mul(), (*sides, b.number(0)), _broadcast(left, right), DType.INT32, "product")
    return Value(b.stored_as(products, [scales[0].scale * scales[1].scale], result), order)


def _extreme(operator: Operator) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        (left, right), scales, order = _operands(b, node)
        shape = _broadcast(left, right)
        if scales[0] == scales[1]:
            chosen = b.emit(operator, (left, right), shape, scales[0].dtype, "chosen")
            return Value(b.requantized(chosen, scales[0], result), order)
        step = max(scale.scale for scale in scales) / _HEADROOM
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        chosen = b.emit(operator, sides, shape, DType.INT32, "chosen")
        return Value(b.stored_as(chosen, [step], result), order)

    return lower


def _operands(b: Lowering, node: Node) -> tuple[tuple[Tensor, Tensor], tuple[Scale, Scale], tuple[int, ...]]:
    """Both operands, of equal rank and stored in one order, what they stand for, and the order."""
    nodes = argument(node, "self"), argument(node, "other")
    rank = len(node.meta["val"].shape)
    values = [_ranked(b, b.integers(item), rank) for item in nodes]
    # The order of the one that has more to move.
    leader = max(values, key=lambda value: (value.tensor.data is None, value.tensor.size))
    left, right = (b.stored(value, leader.order) for value in values)
    return (left, right), (b.scale(nodes[0]), b.scale(nodes[1])), leader.order


def _ranked(b: Lowering, value: Value, rank: int) -> Value:
    """The value with further axes of size 1 in front."""
    missing = rank - len(value.order)
    if not missing:
        return value
    tensor = b.reshaped(value.tensor, (*[1] * missing, *value.tensor.shape))
    return Value(tensor, (*range(missing), *(axis + missing for axis in value.order)))


def _broadcast(left: Tensor, right: Tensor) -> Sequence[int]:
    return [max(pair) if 0 not in pair else 0 for pair in zip(left.shape, right.shape, strict=True)]


EMITTERS: dict[str, Emitter] = {
    "aten.add.Tensor": _sum(Add()),
    "aten.sub.Tensor": _sum(Sub()),
    "aten.mul.Tensor": _product,
    "aten.maximum.default": _extreme(Maximum()),
    "aten.minimum.default": _extreme(Minimum()),
}
