"""Arithmetic of two tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument
from delegatekit_toolkit.tosa import (
    Add,
    ArithmeticRightShift,
    DType,
    Maximum,
    Minimum,
    Mul,
    Operator,
    Sub,
    Tensor,
    Tile,
)
from delegatekit_toolkit.tosa.types import Array

from ..ir.builder import Emitter, Lowering, Result, Scale
from ..ir.values import Value
from ..limits import COMMON_RANK
from .functions import looked_up

if TYPE_CHECKING:
    from torch.fx import Node

#: Sums of two int8 (int16) are in steps of so small a part of the larger operand's: they fit into 30 bits.
_HEADROOM = {DType.INT8: 1 << 20, DType.INT16: 1 << 15}
_LARGEST = 1 << 30
#: 1, for factors of 16 bits with a sign.
_UNIT = (1 << 15) - 1
#: What is halved up to seven times loses nothing, and a product with a factor of 16 bits fits into 31.
_ROOM = 1 << 7


def _sum(operator: Operator) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        """Both operands in steps that are a part of the larger one's, and the sum in steps of the result."""
        (left, right), scales, order = _operands(b, node)
        step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        sums = b.bound(b.emit(operator, sides, _broadcast(left, right), DType.INT32, "sum"), _LARGEST)
        return Value(b.stored_as(sums, [step], result), order)

    return lower


def _product(b: Lowering, node: Node, result: Result) -> Value:
    (left, right), scales, order = _operands(b, node)
    sides = [
        b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
        for tensor, scale in zip((left, right), scales, strict=True)
    ]
    products = b.emit(Mul(), (*sides, b.number(0)), _broadcast(left, right), DType.INT32, "product")
    b.bound(products, _LARGEST if left.dtype == DType.INT16 else 1 << 16)
    return Value(b.stored_as(products, [scales[0].scale * scales[1].scale], result), order)


def _extreme(operator: Operator) -> Emitter:
    def lower(b: Lowering, node: Node, result: Result) -> Value:
        """In steps that are a part of the larger one's: TOSA chooses between int32 only."""
        (left, right), scales, order = _operands(b, node)
        shape = _broadcast(left, right)
        step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        chosen = b.bound(b.emit(operator, sides, shape, DType.INT32, "chosen"), _LARGEST)
        return Value(b.stored_as(chosen, [step], result), order)

    return lower


def _quotient(b: Lowering, node: Node, result: Result) -> Value:
    """a * (1 / b), the reciprocals from tables, each with its power of two: as large as they get, but for 1 / 0."""
    (left, right), scales, order = _operands(b, node)
    before = scales[1]
    if right.data is not None and (right.data != before.zero_point).all():
        divisors = (right.data.astype(np.float64) - before.zero_point) * before.scale
        return Value(_divided(b, left, scales[0], divisors, result), order)
    points = np.arange(-128, 128) - before.zero_point
    points[points == 0] = 1
    places = np.floor(np.log2(np.abs(points)))
    reciprocals = looked_up(b, right, 2.0**places / points * _UNIT, "reciprocal")
    halvings = b.rescaled(b.tabled(right, places, "halvings"), [1.0], name="halvings")
    side = b.rescaled(left, [float(_ROOM)], zero_point=scales[0].zero_point, name="operand")
    shape = _broadcast(left, right)
    products = b.emit(Mul(), (side, reciprocals, b.number(0)), shape, DType.INT32, "product")
    parts = b.emit(ArithmeticRightShift(round=True), (products, halvings), shape, DType.INT32, "parts")
    return Value(b.stored_as(parts, [scales[0].scale / before.scale / _UNIT / _ROOM], result), order)


def _divided(b: Lowering, tensor: Tensor, scale: Scale, divisors: Array, result: Result) -> Tensor:
    """Divided by constants of the tensor's rank."""
    reciprocals = 1 / divisors
    largest = float(np.abs(reciprocals).max())
    factors = b.graph.constant(np.rint(reciprocals / largest * _UNIT), DType.INT32, f"{b.name}.reciprocals")
    side = b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
    products = b.emit(Mul(), (side, factors, b.number(0)), _broadcast(tensor, factors), DType.INT32, "product")
    return b.stored_as(products, [scale.scale * largest / _UNIT], result)


def _gated(b: Lowering, node: Node, result: Result) -> Value:
    """The first half of an axis times the sigmoid of the second."""
    operand = argument(node, "self")
    value, scale = b.integers(operand), b.scale(operand)
    place = value.stored_axis(argument(node, "dim") % len(value.order))
    shape = list(value.tensor.shape)
    shape[place] //= 2
    start = [shape[place] if axis == place else 0 for axis in range(len(shape))]
    left, right = b.sliced(value.tensor, [0] * len(shape), shape), b.sliced(value.tensor, start, shape)
    points = (np.arange(-128, 128) - scale.zero_point) * scale.scale
    gates = looked_up(b, right, _UNIT / (1 + np.exp(-points)), "gate")
    side = b.rescaled(left, [1.0], zero_point=scale.zero_point, name="operand")
    products = b.emit(Mul(), (side, gates, b.number(0)), shape, DType.INT32, "product")
    return Value(b.stored_as(products, [scale.scale / _UNIT], result), value.order)


def _sloped(b: Lowering, node: Node, result: Result) -> Value:
    """The positive part, and the negative one times a slope for each channel."""
    operand, weight = argument(node, "self"), argument(node, "weight")
    value, scale = b.integers(operand), b.scale(operand)
    slopes = b.numbers(weight)
    assert slopes is not None
    sizes = [1] * len(value.order)
    if slopes.size > 1:
        sizes[value.stored_axis(1)] = slopes.size
    return Value(sloped(b, value.tensor, scale, slopes.reshape(sizes), result), value.order)


def sloped(b: Lowering, tensor: Tensor, scale: Scale, slopes: Array, result: Result) -> Tensor:
    """The positive part, and the negative one times slopes, of the tensor's rank."""
    largest = max(float(np.abs(slopes).max()), 1.0)
    factors = b.graph.constant(np.rint(slopes / largest * _UNIT), DType.INT32, f"{b.name}.slopes")
    shape, zero = tensor.shape, b.single(0, tensor.shape)
    side = b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
    positive = b.emit(Maximum(), (side, zero), shape, DType.INT32, "positive")
    negative = b.emit(Minimum(), (side, zero), shape, DType.INT32, "negative")
    sloped = b.emit(Mul(), (negative, factors, b.number(0)), shape, DType.INT32, "sloped")
    whole = b.rescaled(positive, [_UNIT / largest], name="positive")
    sums = b.emit(Add(), (whole, sloped), shape, DType.INT32, "sum")
    return b.stored_as(sums, [scale.scale * largest / _UNIT], result)


def comparable(b: Lowering, node: Node) -> tuple[tuple[Tensor, Tensor], tuple[int, ...]]:
    """Both operands in int32, in steps of one size, and the order in which their axes lie."""
    (left, right), scales, order = _operands(b, node)
    if scales[0] == scales[1]:
        return (b.rescaled(left, [1.0], name="operand"), b.rescaled(right, [1.0], name="operand")), order
    step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
    first, second = (
        b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
        for tensor, scale in zip((left, right), scales, strict=True)
    )
    return (first, second), order


def _operands(b: Lowering, node: Node) -> tuple[tuple[Tensor, Tensor], tuple[Scale, Scale], tuple[int, ...]]:
    """Both operands, of equal rank and stored in one order, what they stand for, and the order."""
    nodes = argument(node, "self"), argument(node, "other")
    rank = len(node.meta["val"].shape)
    values = [ranked(b, b.integers(item), rank) for item in nodes]
    # The order of the one that has more to move.
    leader = max(values, key=lambda value: (value.tensor.data is None, value.tensor.size))
    left, right = (b.stored(value, leader.order) for value in values)
    if rank > COMMON_RANK and left.size == 1:
        left = _repeated(b, left, right.shape)
    return (left, right), (b.scale(nodes[0]), b.scale(nodes[1])), leader.order


def _repeated(b: Lowering, number: Tensor, shape: Sequence[int]) -> Tensor:
    """One number as a tensor: in front of more than four axes Vela (5.1) would read on behind it."""
    if number.data is not None:
        return b.graph.constant(np.broadcast_to(number.data, shape), number.dtype, number.name)
    return b.emit(Tile(), (number, b.sizes(shape)), shape, number.dtype, "repeated")


def ranked(b: Lowering, value: Value, rank: int) -> Value:
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
    "aten.div.Tensor": _quotient,
    "aten.glu.default": _gated,
    "aten.prelu.default": _sloped,
    "aten.maximum.default": _extreme(Maximum()),
    "aten.minimum.default": _extreme(Minimum()),
}
