"""Softmax over rows of int8 or int16, in integers.

int8 look-up tables return eight bits; two of them, for the higher and the lower bits, return exponentials of 15. int16
tables return as many, with straight lines between their entries; reciprocals are read from such in any case. The sum of
a row is normalized to 1 to 2 by its leading zeros, so that its reciprocal has the same relative error for rows of any
length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from delegatekit_api import Call, Operand
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import (
    Add,
    ArithmeticRightShift,
    Clz,
    DType,
    LogicalAnd,
    LogicalLeftShift,
    LogicalNot,
    Maximum,
    MaxPool2d,
    Minimum,
    Mul,
    ReduceAll,
    ReduceMax,
    ReduceSum,
    Select,
    Sub,
    Tensor,
)
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, Array

from ..builder import TosaBuilder
from ..limits import MAX_SCORES, MAX_SOFTMAX, WINDOW
from ..program import ProgramBuilder
from ..tables import KNOTS, Lines, looked_up
from ..values import Result, Value
from .common import Rows, ranked, rows_of

#: The operator, which may be lowered together with the selection before it.
SOFTMAX = "aten._softmax.default"
#: The number of bits of exponentials, and of reciprocals of numbers from 1 to 2.
_BITS = 15
#: The sum of a row, normalized to the same number of bits.
_SUM_BITS = 30
#: The number of integers of each type.
_SPANS = {DType.INT8: 1 << 8, DType.INT16: 1 << 16}
#: The exponential of -12 is 0 in this many bits.
NOTHING = 12.0
#: The factor by which RESCALE multiplies all differences.
_SMALL = 1 << 12
#: The number of fractional bits of logarithms.
_LOG_BITS = 16


# -- constraints -----------------------------------------------------------------------------------------------------


def short_rows(call: Call) -> str | None:
    """Over 2 to 32768 elements."""
    return row_obstacle(call["self"].shape, call["dim"])


def row_obstacle(shape: Sequence[int], dim: int) -> str | None:
    """The reason for refusing a softmax over an axis of a tensor."""
    size = shape[dim] if shape else 1
    if size == 1:
        return "a softmax of one element is constant"
    return None if size <= MAX_SOFTMAX else f"a softmax of {size} elements: {MAX_SOFTMAX} is the maximum"


def near_scores(call: Call) -> str | None:
    """Scores of a range of at most 8192."""
    found = call["self"].quantization
    span = (found.maximum - found.minimum) * found.scale
    if span <= MAX_SCORES:
        return None
    return f"a log_softmax of scores over a range of {span:.4g}: {MAX_SCORES} is the maximum"


# -- lowerings -------------------------------------------------------------------------------------------------------


def _softmax(b: ProgramBuilder, call: Call, result: Result) -> Value:
    return _weights(b, call["self"], call["dim"], None, result)


def masked_softmax(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """Of a selection: where the condition holds, scores are masked for the softmax that reads it."""
    (softmax,) = call.users
    condition = call["condition"]
    known = condition.constant
    hidden = b.integers(condition) if known is None else known.numpy()
    return _weights(b, call["other"], softmax["dim"], hidden, result)


def _weights(b: ProgramBuilder, operand: Operand, dim: int, hidden: Array | Value | None, result: Result) -> Value:
    powers, _, total, order, value = _exponentials(b, operand, dim, hidden)
    places, mantissa = _normalized(b, total)
    reciprocal = _function(b, mantissa, lambda m: (1 << _BITS) / (1.5 + m), "reciprocal")
    products = _binary(b, Mul(), powers, reciprocal, "product", b.number(0))
    # power / sum = power * reciprocal * 2^(places - 45), and places are 16 at most: 2^29 is 1 here.
    missing = _binary(b, Sub(), b.single(_BITS + 1, (1, 1)), places, "missing")
    parts = _binary(b, ArithmeticRightShift(round=True), products, missing, "parts")
    made = b.stored_as(parts, [2.0 ** (1 - _SUM_BITS)], result)
    return Value(b.reshaped(made, [value.shape[axis] for axis in order]), order)


def _log_softmax(b: ProgramBuilder, call: Call, result: Result) -> Value:
    operand = call["self"]
    _, below, total, order, value = _exponentials(b, operand, call["dim"])
    places, mantissa = _normalized(b, total)
    # ln(sum) = ln(mantissa) + ln(2) * (15 - places)
    logarithm = _function(b, mantissa, lambda m: np.log(1.5 + m) * (1 << _LOG_BITS), "logarithm", bits=_LOG_BITS)
    missing = _binary(b, Sub(), b.single(_BITS, (1, 1)), places, "missing")
    factor = b.single(round(float(np.log(2)) * (1 << _LOG_BITS)), (1, 1))
    octaves = _binary(b, Mul(), missing, factor, "octaves", b.number(0))
    shift = _binary(b, Add(), logarithm, octaves, "shift")
    scale = b.scale(operand).scale
    exact = b.rescaled(below, [scale * (1 << _LOG_BITS)], name="below")
    difference = _binary(b, Sub(), exact, shift, "difference")
    made = b.stored_as(difference, [2.0**-_LOG_BITS], result)
    return Value(b.reshaped(made, [value.shape[axis] for axis in order]), order)


def _exponentials(
    b: ProgramBuilder, operand: Operand, dim: int, hidden: Array | Value | None = None
) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...], Value]:
    """exp(x - largest) of each row in int32 and their sum; x - largest in int32; and the rows' order.

    Masked scores count for nothing; in completely masked rows, all are equal.
    """
    value, scale = b.integers(operand), b.scale(operand).scale
    rows, order = rows_of(b, value, dim)
    shape = [value.shape[axis] for axis in order]
    if isinstance(hidden, Value):
        hides = b.stored(ranked(b, hidden, len(order)), order)
        lowest = b.graph.constant(np.full([1] * len(order), INTEGER_RANGES[rows.dtype][0]), rows.dtype)
        visible = b.emit(Select(), (hides, lowest, b.reshaped(rows, shape)), shape, rows.dtype, "visible")
        rows = b.reshaped(visible, rows.shape)
    elif hidden is not None:
        mask: Array = hidden.reshape([1] * (len(order) - hidden.ndim) + list(hidden.shape)).transpose(order)
        bounds = np.where(mask, *INTEGER_RANGES[rows.dtype])
        rows = b.reshaped(_lowest(b, b.reshaped(rows, shape), bounds), rows.shape)
    ways = [_by_pools, _by_reduction] if _parts_of(rows.shape[1]) else [_by_reduction]
    largest = b.cheapest(rows, ways, "largest of rows")
    sides = b.rescaled(rows, [1.0], name="operand"), b.rescaled(largest, [1.0], name="operand")
    difference = _binary(b, Sub(), *sides, "difference")
    # From -255 to 0 (-65535): these are 256 numbers. For int16 those that make a difference are kept, in whole parts
    # of the scale. Beyond the least of 16 bits nothing makes a difference: RESCALE would not be defined that far away.
    span, top = _SPANS[rows.dtype], INTEGER_RANGES[rows.dtype][1]
    factor = 1 if rows.dtype == DType.INT8 else min(max(1, int(scale * span / NOTHING)), 4 * span)
    step = scale / factor if factor < 4 * span else NOTHING / span
    narrow = difference
    if factor > 1:
        lowest = b.single(-math.ceil(4 * span / factor), (1, 1))
        near = difference if factor < _SMALL else _binary(b, Maximum(), difference, lowest, "near")
        narrow = b.rescaled(near, [float(factor)], name="narrow")
    raised = _binary(b, Add(), narrow, b.single(top, (1, 1)), "raised")
    below = b.rescaled(raised, [1.0], dtype=rows.dtype, name="below")
    unit = (1 << _BITS) - 1
    powers = _function(b, below, lambda m: np.exp((m * span - top) * step) * unit, "power")
    if isinstance(hidden, Value):
        none = b.graph.constant(np.zeros([1] * len(order)), DType.INT32)
        operands = (_among_others(b, hides), none, b.reshaped(powers, shape))
        powers = b.reshaped(b.emit(Select(), operands, shape, DType.INT32, "seen"), rows.shape)
    elif hidden is not None:
        seen = b.graph.constant(~mask | mask.all(order.index(dim % len(order)), keepdims=True), DType.INT32)
        powers = _binary(b, Mul(), b.reshaped(powers, shape), seen, "seen", b.number(0))
        powers = b.reshaped(powers, rows.shape)
    total = b.emit(ReduceSum(1), (powers,), (rows.shape[0], 1), DType.INT32, "total")
    return powers, difference, total, order, value


def _by_reduction(b: TosaBuilder, rows: Tensor) -> Tensor:
    """The largest of each row, (N, S) to (N, 1)."""
    return b.emit(ReduceMax(1), (rows,), (rows.shape[0], 1), rows.dtype, "largest")


def _by_pools(b: TosaBuilder, rows: Tensor) -> Tensor:
    """The same by maximum pools over columns: a transpose, but then many rows at once."""
    count, left = rows.shape
    found = b.transposed(rows, (1, 0))
    for size in _parts_of(left):
        left //= size
        image = b.reshaped(found, (left, size, 1, count))
        found = b.emit(MaxPool2d((size, 1)), (image,), (left, 1, 1, count), rows.dtype, "largest")
    return b.reshaped(found, (count, 1))


def _parts_of(size: int) -> list[int]:
    """Heights of windows, one or two, whose product is the size; empty if there are none."""
    if size <= WINDOW[0]:
        return [size]
    height = next((part for part in range(WINDOW[0], 1, -1) if size % part == 0), 1)
    return [height, size // height] if size // height <= WINDOW[0] else []


def _among_others(b: ProgramBuilder, hides: Tensor) -> Tensor:
    """The mask, except in rows that are completely masked."""
    one = (*hides.shape[:-1], 1)
    whole = b.emit(ReduceAll(len(one) - 1), (hides,), one, DType.BOOL, "whole")
    others = b.emit(LogicalNot(), (whole,), one, DType.BOOL, "others")
    return b.emit(LogicalAnd(), (hides, others), hides.shape, DType.BOOL, "hidden")


def _lowest(b: ProgramBuilder, x: Tensor, bounds: Array) -> Tensor:
    """Values limited to upper bounds."""
    limit = b.graph.constant(bounds, DType.INT32)
    found = _binary(b, Minimum(), b.rescaled(x, [1.0], name="score"), limit, "visible")
    return b.rescaled(found, [1.0], dtype=x.dtype, name="visible")


def _normalized(b: ProgramBuilder, total: Tensor) -> tuple[Tensor, Tensor]:
    """The number of places that a sum was shifted to have 31 bits, and the result, from 1 to 2, minus 1.5, as int16."""
    zeros = b.emit(Clz(), (total,), total.shape, DType.INT32, "zeros")
    places = _binary(b, Sub(), zeros, b.single(1, (1, 1)), "places")
    whole = _binary(b, LogicalLeftShift(), total, places, "normal")
    middle = b.single(3 << _SUM_BITS - 1, (1, 1))
    centred = _binary(b, Sub(), whole, middle, "centred")
    step = _SPANS[DType.INT16] * 2.0**-_SUM_BITS
    return places, b.rescaled(centred, [step], dtype=DType.INT16, name="mantissa")


def _function(
    b: ProgramBuilder, tensor: Tensor, function: Callable[[Array], Array], name: str, bits: int = _BITS
) -> Tensor:
    """Integers of `bits` bits for the integers of a tensor; the function gets them as a fraction of the whole range."""
    wide = tensor.dtype == DType.INT16
    knots = KNOTS if wide else np.arange(-128, 128, dtype=np.float64)
    values = np.clip(function(knots / _SPANS[tensor.dtype]), 0, (1 << bits) - 1)
    if not wide:
        return looked_up(b, tensor, values, name)
    lines = Lines(values)
    return b.rescaled(lines.of(b, tensor, name), [lines.step], name=name)


def _binary(b: ProgramBuilder, operator: object, left: Tensor, right: Tensor, name: str, *more: Tensor) -> Tensor:
    shape = [max(pair) for pair in zip(left.shape, right.shape, strict=True)]
    return b.emit(operator, (left, right, *more), shape, DType.INT32, name)  # type: ignore[arg-type]


#: On a row: the operator before it that is lowered with it, if it has no other reader.
ROWS: Rows = (
    row(SOFTMAX, _softmax, short_rows, pair="aten.where.self"),
    row("_log_softmax.default", _log_softmax, short_rows, near_scores),
)
