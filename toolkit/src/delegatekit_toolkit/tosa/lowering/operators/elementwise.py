"""Arithmetic of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import row
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

from ..limits import COMMON_RANK
from ..program import LowerCall, ProgramBuilder
from ..tables import looked_up
from ..values import Result, Scale, Value
from .common import UNIT, Rows, constant_parameters, eight_bits, ranked, sloped

#: Sums of two int8 (int16) are in steps of this fraction of the larger operand's: they fit 30 bits.
_HEADROOM = {DType.INT8: 1 << 20, DType.INT16: 1 << 15}
_LARGEST = 1 << 30
#: Values that are halved up to seven times lose nothing, and a product with a factor of 16 bits fits 31 bits.
_ROOM = 1 << 7


# -- constraints -----------------------------------------------------------------------------------------------------


def plain_sum(call: Call) -> str | None:
    """alpha is 1."""
    alpha = call["alpha"]
    return None if alpha == 1 else f"alpha = {alpha}: only 1 is taken"


def constant_divisor(call: Call) -> str | None:
    """In int16 divisors are constants, and not 0."""
    if eight_bits(call) is None:
        return None
    integers = call["other"].integers
    known = integers is not None and integers.constant is not None and bool(integers.constant.all())
    return None if known else "its divisor is computed: int16 has tables of smooth functions only"


# -- lowerings -------------------------------------------------------------------------------------------------------


def _sum(operator: Operator) -> LowerCall:
    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        """Both operands in steps that are a fraction of the larger one's, and the sum in steps of the result."""
        (left, right), scales, order = _operands(b, call)
        step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        sums = b.bound(b.emit(operator, sides, _broadcast(left, right), DType.INT32, "sum"), _LARGEST)
        return Value(b.stored_as(sums, [step], result), order)

    return lower


def _product(b: ProgramBuilder, call: Call, result: Result) -> Value:
    (left, right), scales, order = _operands(b, call)
    sides = [
        b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
        for tensor, scale in zip((left, right), scales, strict=True)
    ]
    products = b.emit(Mul(), (*sides, b.number(0)), _broadcast(left, right), DType.INT32, "product")
    b.bound(products, _LARGEST if left.dtype == DType.INT16 else 1 << 16)
    return Value(b.stored_as(products, [scales[0].scale * scales[1].scale], result), order)


def _extreme(operator: Operator) -> LowerCall:
    def lower(b: ProgramBuilder, call: Call, result: Result) -> Value:
        """In steps that are a fraction of the larger one's: TOSA selects between int32 only."""
        (left, right), scales, order = _operands(b, call)
        shape = _broadcast(left, right)
        step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
        sides = [
            b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
            for tensor, scale in zip((left, right), scales, strict=True)
        ]
        chosen = b.bound(b.emit(operator, sides, shape, DType.INT32, "chosen"), _LARGEST)
        return Value(b.stored_as(chosen, [step], result), order)

    return lower


def _quotient(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """a * (1 / b), the reciprocals from tables, each with its power of two: as large as possible, except 1 / 0."""
    (left, right), scales, order = _operands(b, call)
    before = scales[1]
    if right.data is not None and (right.data != before.zero_point).all():
        divisors = (right.data.astype(np.float64) - before.zero_point) * before.scale
        return Value(_divided(b, left, scales[0], divisors, result), order)
    points = np.arange(-128, 128) - before.zero_point
    points[points == 0] = 1
    places = np.floor(np.log2(np.abs(points)))
    reciprocals = looked_up(b, right, 2.0**places / points * UNIT, "reciprocal")
    halvings = b.rescaled(b.tabled(right, places, "halvings"), [1.0], name="halvings")
    side = b.rescaled(left, [float(_ROOM)], zero_point=scales[0].zero_point, name="operand")
    shape = _broadcast(left, right)
    products = b.emit(Mul(), (side, reciprocals, b.number(0)), shape, DType.INT32, "product")
    parts = b.emit(ArithmeticRightShift(round=True), (products, halvings), shape, DType.INT32, "parts")
    return Value(b.stored_as(parts, [scales[0].scale / before.scale / UNIT / _ROOM], result), order)


def _divided(b: ProgramBuilder, tensor: Tensor, scale: Scale, divisors: Array, result: Result) -> Tensor:
    """Divided by constants of the tensor's rank."""
    reciprocals = 1 / divisors
    largest = float(np.abs(reciprocals).max())
    factors = b.graph.constant(np.rint(reciprocals / largest * UNIT), DType.INT32, f"{b.name}.reciprocals")
    side = b.rescaled(tensor, [1.0], zero_point=scale.zero_point, name="operand")
    products = b.emit(Mul(), (side, factors, b.number(0)), _broadcast(tensor, factors), DType.INT32, "product")
    return b.stored_as(products, [scale.scale * largest / UNIT], result)


def _gated(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """The first half of an axis times the sigmoid of the second."""
    operand = call["self"]
    value, scale = b.integers(operand), b.scale(operand)
    place = value.stored_axis(call["dim"] % len(value.order))
    shape = list(value.tensor.shape)
    shape[place] //= 2
    start = [shape[place] if axis == place else 0 for axis in range(len(shape))]
    left, right = b.sliced(value.tensor, [0] * len(shape), shape), b.sliced(value.tensor, start, shape)
    points = (np.arange(-128, 128) - scale.zero_point) * scale.scale
    gates = looked_up(b, right, UNIT / (1 + np.exp(-points)), "gate")
    side = b.rescaled(left, [1.0], zero_point=scale.zero_point, name="operand")
    products = b.emit(Mul(), (side, gates, b.number(0)), shape, DType.INT32, "product")
    return Value(b.stored_as(products, [scale.scale / UNIT], result), value.order)


def _sloped(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """The positive part, and the negative one times a slope for each channel."""
    operand, weight = call["self"], call["weight"]
    value, scale = b.integers(operand), b.scale(operand)
    slopes = b.numbers(weight)
    assert slopes is not None
    sizes = [1] * len(value.order)
    if slopes.size > 1:
        sizes[value.stored_axis(1)] = slopes.size
    return Value(sloped(b, value.tensor, scale, slopes.reshape(sizes), result), value.order)


def comparable(b: ProgramBuilder, call: Call) -> tuple[tuple[Tensor, Tensor], tuple[int, ...]]:
    """Both operands in int32, in steps of one size, and the order in which their axes are stored."""
    (left, right), scales, order = _operands(b, call)
    if scales[0] == scales[1]:
        return (b.rescaled(left, [1.0], name="operand"), b.rescaled(right, [1.0], name="operand")), order
    step = 2 * max(scale.scale for scale in scales) / _HEADROOM[left.dtype]
    first, second = (
        b.rescaled(tensor, [scale.scale / step], zero_point=scale.zero_point, name="operand")
        for tensor, scale in zip((left, right), scales, strict=True)
    )
    return (first, second), order


def _operands(b: ProgramBuilder, call: Call) -> tuple[tuple[Tensor, Tensor], tuple[Scale, Scale], tuple[int, ...]]:
    """Both operands, of equal rank and stored in one order, their scales, and the order."""
    operands: tuple[Operand, Operand] = call["self"], call["other"]
    rank = call.result.rank
    values = [ranked(b, b.integers(item), rank) for item in operands]
    # The order of the operand with more elements to move.
    leader = max(values, key=lambda value: (value.tensor.data is None, value.tensor.size))
    left, right = (b.stored(value, leader.order) for value in values)
    if rank > COMMON_RANK and left.size == 1:
        left = _repeated(b, left, right.shape)
    return (left, right), (b.scale(operands[0]), b.scale(operands[1])), leader.order


def _repeated(b: ProgramBuilder, number: Tensor, shape: Sequence[int]) -> Tensor:
    """One number as a tensor: as left operand of more than four axes a compiler in use would read past its end."""
    if number.data is not None:
        return b.graph.constant(np.broadcast_to(number.data, shape), number.dtype, number.name)
    return b.emit(Tile(), (number, b.sizes(shape)), shape, number.dtype, "repeated")


def _broadcast(left: Tensor, right: Tensor) -> Sequence[int]:
    return [max(pair) for pair in zip(left.shape, right.shape, strict=True)]


#: On a row: several consecutive ones of these operators on one tensor and numbers are one table.
ROWS: Rows = (
    row("add.Tensor", _sum(Add()), plain_sum, pointwise=True),
    row("sub.Tensor", _sum(Sub()), plain_sum, pointwise=True),
    row("mul.Tensor", _product, pointwise=True),
    row("maximum.default", _extreme(Maximum()), pointwise=True),
    row("minimum.default", _extreme(Minimum()), pointwise=True),
    row("div.Tensor", _quotient, constant_divisor, pointwise=True),
    row("prelu.default", _sloped, constant_parameters("weight"), keep=True),
    row("glu.default", _gated, eight_bits, keep=True),
)
