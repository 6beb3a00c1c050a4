"""Functions of single values: PyTorch's results for the 256 values of an int8 tensor, as one table.

int16 tables have 513 entries, between which the NPU interpolates: they are for smooth functions. Some functions that
bend where an int16 table has no entries are a few steps of arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch.fx.node import map_arg

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.support import row
from delegatekit_toolkit.tosa import Abs, Add, DType, Maximum, Minimum, Mul, Sub, Tensor
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, Array
from delegatekit_toolkit.units import Unit

from ..program import ProgramBuilder, scale_of
from ..tables import INTEGERS, KNOTS, Lines
from ..values import Result, Scale, Value
from .common import Rows, is_wide, sloped

#: The smallest change of a result that counts, in its steps.
_CHANGE: Final = 0.25
#: A table is concentrated around 0 if it is as accurate with this part of the numbers, or less.
_WORTH: Final = 0.75
#: The allowed deviation of straight lines from a function, in steps of its result.
_INTERPOLATED: Final = 0.75
#: A function with a larger deviation is refused, in the same steps.
_FARTHEST: Final = 1.0
#: RESCALE would not multiply all integers by more.
_NARROWEST: Final = 1 << 14
#: 1, for gates.
_ONE: Final = 1 << 15
#: Operators that are only two bounds.
_BOUNDS: Final = ("aten.relu.default", "aten.hardtanh.default", "aten.clamp.default")


# -- constraints -----------------------------------------------------------------------------------------------------


def single_values(call: Call) -> str | None:
    """A function of one quantized tensor, number by number; several of these in a row are one table."""
    return "its operands are not one quantized tensor and numbers, or of int16 and not smooth"


def single_or_wide(call: Call) -> str | None:
    """A function of one quantized tensor, number by number; several of these in a row are one table."""
    return None if is_wide(call) else single_values(call)


# -- tables ----------------------------------------------------------------------------------------------------------


def lower_function(b: ProgramBuilder, call: Call, result: Result) -> Value:
    """The table of a unit, which includes its bounds; bounds of int16 are a clamp.

    Nothing at all if the integers stay unchanged: a product with a number is only another scale.
    """
    after = result.scale
    operand = _operand_of(b.unit)
    value, before = b.integers(operand), b.scale(operand)
    only_bounds = len(b.unit.inner) == 1 and call.operator in _BOUNDS
    if before.dtype == DType.INT16 and not only_bounds:
        return Value(_smooth(b, call, value.tensor, before, after), value.order)
    if before.dtype == DType.INT16 or (before == after and only_bounds):
        bounded = Result(after, clamp_bounds(call, after))
        return Value(b.requantized(value.tensor, before, bounded), value.order)
    entries = _table_of(b)
    if np.array_equal(entries, np.arange(-128, 128)):
        return value
    return Value(b.tabled(value.tensor, entries), value.order)


def _operand_of(unit: Unit) -> Operand:
    """The one operand of a function that is not constant."""
    return next(item for item in unit.operands if item.integers is not None and not item.integers.is_constant)


@dataclass(frozen=True)
class _Curve:
    """An int16 function as straight lines, over integers with a scale of their own, and corrections added to them."""

    step: float
    lines: Lines
    corrections: Sequence[tuple[int, int, Lines]]
    #: Their deviation from the function, in steps of the result.
    error: float


def _curve(call: Call, before: Scale, after: Scale) -> _Curve:
    """The lines of a function. Constant parts of its result are not interpolated."""

    def values_at(points: Array) -> Array:
        with torch.no_grad():
            made = _computed(call, dict.fromkeys(call.node.all_input_nodes, torch.from_numpy(points)))
        found: Array = made.numpy()
        return found

    # A whole factor: the integers of the operand are among those of the lines.
    factor, step = 1, before.scale
    while (part := _reach(values_at(KNOTS * step), after)) < _WORTH:
        wider = min(_NARROWEST, int(factor / part))
        if wider == factor:
            break
        factor, step = wider, before.scale / wider
    lowest, highest = INTEGER_RANGES[after.dtype]
    bounds = lowest * after.scale, highest * after.scale
    lines = Lines(_held(values_at(KNOTS * step), *bounds), after.scale)
    exact = np.clip(values_at(INTEGERS * step), *bounds)
    corrections, error = lines.corrections(exact, bounds, _INTERPOLATED * after.scale)
    return _Curve(step, lines, corrections, error / after.scale)


def curve_obstacle(unit: Unit) -> str | None:
    """The reason why straight lines are too inexact for a unit's int16 function; None otherwise, or without one."""
    scales = [scale_of(found, unit.anchor.operator) for item in unit.results if (found := item.quantization)]
    operand = _operand_of(unit)
    if scales[0].dtype != DType.INT16 or unit.anchor.operator in _BOUNDS or operand.quantization is None:
        return None
    before = scale_of(operand.quantization, operand.description)
    error = max(_curve(unit.anchor, before, after).error for after in scales)
    return f"straight lines lead {error:.0f} steps of the result away from it" if error > _FARTHEST else None


def _smooth(b: ProgramBuilder, call: Call, tensor: Tensor, before: Scale, after: Scale) -> Tensor:
    """A function of int16."""
    curve = _curve(call, before, after)

    def change(x: Tensor) -> Tensor:
        ratio = before.scale / curve.step
        narrow = x if curve.step == before.scale else b.rescaled(x, [ratio], dtype=DType.INT16, name="narrow")
        found = curve.lines.of(b, narrow)
        for place, factor, lines in curve.corrections:
            side = b.rescaled(narrow, [1.0], name="side")
            moved = b.emit(Sub(), (side, b.single(place, x.shape)), x.shape, DType.INT32, "moved") if place else side
            near = b.rescaled(moved, [float(factor)], dtype=DType.INT16, name="near")
            more = b.rescaled(lines.of(b, near), [lines.step / curve.lines.step], name="more")
            found = b.emit(Add(), (found, more), x.shape, DType.INT32, "corrected")
        return b.stored_as(found, [curve.lines.step], Result(after))

    return b.before_moves(tensor, change)


def _reach(values: Array, after: Scale) -> float:
    """The part of the integers, around 0, outside which a result hardly changes, either way; knots are at its ends."""
    results = np.clip(values / after.scale, *INTEGER_RANGES[after.dtype])
    middle = len(results) // 2
    changing = [
        place
        for side in (results[middle:], results[middle::-1])
        for place in np.flatnonzero(np.abs(side - side[-1]) > _CHANGE)
    ]
    return (max(changing) + 1) / middle if changing else 1.0


def _held(values: Array, low: float, high: float) -> Array:
    """Values at `KNOTS`, limited to the lines' reach beyond a range, where everything saturates.

    Otherwise the exponential of the largest integer would determine a table's resolution even if only
    negative ones occur.
    """
    above, below = values > high, values < low
    outside = (above[:-1] & above[1:]) | (below[:-1] & below[1:])
    counted = ~(np.append(outside, True) & np.insert(outside, 0, True))
    reached = np.array([low, high, *values[counted]])
    found: Array = np.clip(values, reached.min(), reached.max())
    return found


def _table_of(b: ProgramBuilder) -> Array:
    """The result for each of the integers from -128 to 127, computed by the program's own operators."""
    unit, integers = b.unit, torch.arange(-128, 128).to(torch.int8)
    known: dict[Any, torch.Tensor] = {}
    dequantizes = [operand.producer for operand in unit.operands]
    with torch.no_grad():
        for call in (*dequantizes, *unit.inner, b.end):
            assert call is not None
            for operand in call.operands:
                if operand.node not in known:
                    known[operand.node] = integers if operand.constant is None else operand.constant.reshape(())
            made = _computed(call, known)
            known[call.node] = made.reshape(()) if made.numel() == 1 else made
    entries: Array = known[b.end.node].numpy().astype(np.int8)
    return entries


def _computed(call: Call, known: dict[Any, torch.Tensor]) -> torch.Tensor:
    """PyTorch's result for other operands."""
    arguments, keywords = map_arg((call.node.args, call.node.kwargs), known.__getitem__)
    made: torch.Tensor = call.node.target(*arguments, **keywords)  # type: ignore[operator]
    return made


def clamp_bounds(call: Call, scale: Scale) -> tuple[int, int]:
    """The integers of a clamp's bounds: rounding keeps order, so that integers can be clamped instead.

    If the lower bound is above the upper one, PyTorch returns the upper one.
    """
    low, high = _bounds(call)
    bounds = torch.tensor([min(low, high), high], dtype=torch.float32)
    rounded = torch.clamp(torch.round(bounds * (1.0 / scale.scale)) + scale.zero_point, *INTEGER_RANGES[scale.dtype])
    return int(rounded[0]), int(rounded[1])


def _bounds(call: Call) -> tuple[float, float]:
    low, high = bounds_of(call)
    return -math.inf if low is None else low, math.inf if high is None else high


# -- arithmetic of int16 ---------------------------------------------------------------------------------------------


def _operand(b: ProgramBuilder, call: Call) -> tuple[Value, float]:
    """The operand and its scale."""
    operand = call["self"]
    return b.integers(operand), b.scale(operand).scale


def _absolute(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, scale = _operand(b, call)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    made = b.emit(Abs(), (side,), side.shape, DType.INT32, "absolute")
    return Value(b.stored_as(made, [scale], result), value.order)


def _negative(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, scale = _operand(b, call)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    made = b.emit(Sub(), (b.single(0, side.shape, left=True), side), side.shape, DType.INT32, "negative")
    return Value(b.stored_as(made, [scale], result), value.order)


def _leaky(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, _ = _operand(b, call)
    slopes = np.full([1] * len(value.order), float(call["negative_slope"]))
    return Value(sloped(b, value.tensor, b.scale(call["self"]), slopes, result), value.order)


def _gates(b: ProgramBuilder, x: Tensor, scale: float) -> Tensor:
    """x / 6 + 1 / 2, from 0 to 1."""
    parts = b.rescaled(x, [scale / 6 * _ONE], name="sixth")
    raised = b.emit(Add(), (parts, b.single(_ONE // 2, x.shape)), x.shape, DType.INT32, "raised")
    positive = b.emit(Maximum(), (raised, b.single(0, x.shape)), x.shape, DType.INT32, "positive")
    return b.emit(Minimum(), (positive, b.single(_ONE, x.shape)), x.shape, DType.INT32, "gates")


def _hardsigmoid(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, scale = _operand(b, call)
    return Value(b.stored_as(_gates(b, value.tensor, scale), [1 / _ONE], result), value.order)


def _hardswish(b: ProgramBuilder, call: Call, result: Result) -> Value:
    value, scale = _operand(b, call)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    operands = side, _gates(b, value.tensor, scale), b.number(0)
    products = b.emit(Mul(), operands, side.shape, DType.INT32, "product")
    return Value(b.stored_as(products, [scale / _ONE], result), value.order)


#: On a row: any number of these operators on one tensor are one table; for int16, a single one is if it is smooth (has
#: no steps, and bends at 0 only: 512 straight lines are enough). A clamp may follow another operator.
ROWS: Rows = (
    row("relu.default", lower_function, single_values, pointwise=True, clamp=True),
    row("hardtanh.default clamp.default", lower_function, single_values, keep=True, pointwise=True, clamp=True),
    row(
        "sigmoid.default tanh.default exp.default expm1.default erf.default atan.default asinh.default",
        lower_function,
        single_values,
        pointwise=True,
        smooth=True,
    ),
    row(
        "silu.default gelu.default mish.default softplus.default log_sigmoid.default elu.default celu.default",
        lower_function,
        single_values,
        keep=True,
        pointwise=True,
        smooth=True,
    ),
    row("abs.default", _absolute, single_or_wide, pointwise=True),
    row("neg.default", _negative, single_or_wide, pointwise=True),
    row("hardsigmoid.default", _hardsigmoid, single_or_wide, keep=True, pointwise=True),
    row("hardswish.default", _hardswish, single_or_wide, keep=True, pointwise=True),
    row("leaky_relu.default", _leaky, single_or_wide, keep=True, pointwise=True),
    row(
        "threshold.default hardshrink.default softshrink.default square.default",
        lower_function,
        single_values,
        keep=True,
        pointwise=True,
    ),
    row(
        "log.default log1p.default log2.default log10.default sqrt.default rsqrt.default reciprocal.default "
        "sin.default cos.default tan.default asin.default acos.default sinh.default cosh.default acosh.default "
        "atanh.default sign.default floor.default ceil.default round.default trunc.default "
        "add.Scalar sub.Scalar mul.Scalar div.Scalar rsub.Scalar pow.Tensor_Scalar pow.Tensor_Tensor",
        lower_function,
        single_values,
        pointwise=True,
    ),
)
