"""Functions of single values: whatever PyTorch makes of the 256 numbers that an int8 tensor can hold, as one table.

Tables of int16 have 513 entries, between which the NPU interpolates: they are for smooth functions.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.fx.node import map_arg

from delegatekit_api import argument, operator_name
from delegatekit_api.quantization import DEQUANTIZE
from delegatekit_toolkit.tosa import Add, DType, Table, Tensor
from delegatekit_toolkit.tosa.types import INTEGER_RANGES, Array

from ..ir.builder import Lowering, Result, Scale
from ..ir.units import CLAMPS, Unit, is_clamp
from ..ir.values import Value

if TYPE_CHECKING:
    from torch.fx import Node

#: Operators that make each value of its own operand's value, or of those of two tensors of one shape.
POINTWISE: Final = (
    CLAMPS
    | {
        f"aten.{name}.default"
        for name in (
            *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1"),
            *(
                "floor",
                "log",
                "log1p",
                "log2",
                "log10",
                "neg",
                "reciprocal",
                "round",
                "rsqrt",
                "sigmoid",
                "sign",
                "sin",
            ),
            *("sinh", "sqrt", "square", "tan", "tanh", "trunc", "silu", "gelu", "hardswish", "hardsigmoid", "mish"),
            *("softplus", "log_sigmoid", "elu", "celu", "leaky_relu", "threshold", "hardshrink", "softshrink"),
            *("maximum", "minimum"),
        )
    }
    | {
        f"aten.{name}"
        for name in (
            *(
                "add.Tensor",
                "sub.Tensor",
                "mul.Tensor",
                "div.Tensor",
                "add.Scalar",
                "sub.Scalar",
                "mul.Scalar",
                "div.Scalar",
            ),
            *("rsub.Scalar", "pow.Tensor_Scalar", "pow.Tensor_Tensor"),
        )
    }
)


#: The integers at which a table of int16 has its entries.
KNOTS: Final = np.arange(-(1 << 15), (1 << 15) + 1, 1 << 7, dtype=np.float64)
#: The largest entry, and the steps between two integers of an entry in the result.
_UNIT: Final = (1 << 15) - 1
_FRACTION: Final = 1 << 7
#: What counts as a change of a result, in its steps.
_CHANGE: Final = 0.25
#: A table is drawn together around 0 if it is as good with this part of the numbers, or less.
_WORTH: Final = 0.75
#: More than this RESCALE would not multiply all integers by.
_NARROWEST: Final = 1 << 14


def lower_function(b: Lowering, unit: Unit, after: Scale, result: Node) -> Value:
    """The table of a unit, in which bounds are already; bounds of int16 are a clamp.

    Nothing at all where the integers stay what they are: a product with a number is no more than another scale.
    """
    operand = next(node for node in unit.operands if b.view_of_program.constant(node.args[0]) is None)
    value, before = b.integers(operand), b.scale(operand)
    if before.dtype == DType.INT16 and not is_clamp(unit.inner):
        return Value(_smooth(b, unit, value.tensor, before, after), value.order)
    if before.dtype == DType.INT16 or (before == after and is_clamp(unit.inner)):
        low, high = clamp_bounds(unit.inner[-1], after)
        return Value(b.requantized(value.tensor, before, Result(after, low, high)), value.order)
    entries = table_of(b, unit, result)
    if np.array_equal(entries, np.arange(-128, 128)):
        return value
    return Value(b.tabled(value.tensor, entries), value.order)


def _smooth(b: Lowering, unit: Unit, tensor: Tensor, before: Scale, after: Scale) -> Tensor:
    """A function of int16. Where its result is constant nothing is interpolated."""

    def values_at(step: float) -> Array:
        points = torch.from_numpy(KNOTS * step)
        arguments, keywords = map_arg((unit.anchor.args, unit.anchor.kwargs), lambda node: points)
        with torch.no_grad():
            found: Array = unit.anchor.target(*arguments, **keywords).numpy()  # type: ignore[operator]
        return found

    step, finest = before.scale, before.scale / _NARROWEST
    while step > finest and (part := _reach(values_at(step), after)) < _WORTH:
        step = max(finest, step * part)
    lowest, highest = INTEGER_RANGES[after.dtype]
    values = _held(values_at(step), lowest * after.scale, highest * after.scale)

    def change(x: Tensor) -> Tensor:
        narrow = x if step == before.scale else b.rescaled(x, [before.scale / step], dtype=DType.INT16, name="narrow")
        found, unit = interpolated(b, narrow, values, after.scale)
        return b.stored_as(found, [unit], Result(after))

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
    """Values at `KNOTS` that go no farther out of a range than lines from inside it lead: all of it saturates there.

    Else the exponential of the largest integer would decide how fine a table is, where only negative ones occur.
    """
    above, below = values > high, values < low
    outside = (above[:-1] & above[1:]) | (below[:-1] & below[1:])
    counted = ~(np.append(outside, True) & np.insert(outside, 0, True))
    reached = np.array([low, high, *values[counted]])
    found: Array = np.clip(values, reached.min(), reached.max())
    return found


def interpolated(
    b: Lowering, tensor: Tensor, values: Array, avoided: float = 0.0, name: str = "between"
) -> tuple[Tensor, float]:
    """Real values at `KNOTS`, with straight lines in between, for int16: as int32, and what one of these stands for.

    The unit of the entries is never `avoided`: Vela would join the table and a RESCALE by 2^-7 to int16, and what the
    NPU makes of that is not documented.
    """
    unit = max(float(np.abs(values).max()), float(np.abs(np.diff(values)).max())) / _UNIT
    if math.isclose(unit, avoided, rel_tol=2.0**-20):
        unit *= 1 + 2.0**-12
    operand = b.graph.constant(np.rint(values / unit), DType.INT16, f"{b.name}.table")
    return b.emit(Table(), (tensor, operand), tensor.shape, DType.INT32, name), unit / _FRACTION


def table_of(b: Lowering, unit: Unit, result: Node) -> Array:
    """The result for each of the integers from -128 to 127: the program's own operators compute it."""
    known: dict[Any, Any] = {}
    integers = torch.arange(-128, 128).to(torch.int8)

    def value(node: Any) -> Any:
        if node in known:
            return known[node]
        data = b.view_of_program.constant(node)
        return integers if data is None else data.reshape(())

    with torch.no_grad():
        for node in (*unit.operands, *unit.inner, result):
            arguments, keywords = map_arg((node.args, node.kwargs), value)
            known[node] = node.target(*arguments, **keywords)  # type: ignore[operator]
            if operator_name(node) in DEQUANTIZE and b.view_of_program.constant(node.args[0]) is not None:
                known[node] = known[node].reshape(())
    entries: Array = known[result].numpy().astype(np.int8)
    return entries


def looked_up(b: Lowering, tensor: Tensor, values: Array, name: str) -> Tensor:
    """Integers of up to 16 bits (-32768 to 65535) for the 256 values of int8, as int32.

    Tables give eight bits: one has the higher ones, another the lower.
    """
    points = np.rint(values).astype(np.int64)
    low, high = int(points.min()), int(points.max())
    offset = 0 if low >= 0 else 1 << 15
    bits = 16 if offset else max(9, high.bit_length())
    points = points + offset
    step = bits - 8
    parts = []
    for part, scale in ((points >> step, 1 << step), (points & (1 << step) - 1, 1)):
        found = b.tabled(tensor, part - 128, name, f"{name}.table")
        # Half of the offset is a zero point: -128 stands for the smallest.
        zero = 0 if offset and scale > 1 else -128
        parts.append(b.rescaled(found, [float(scale)], zero_point=zero, name=name))
    return b.emit(Add(), parts, tensor.shape, DType.INT32, name)


def clamp_bounds(node: Node, scale: Scale) -> tuple[int, int]:
    """The integers that a clamp's bounds become: rounding keeps order, so that integers can be clamped instead.

    Where the lower bound is above the upper one, PyTorch gives the upper one.
    """
    low, high = _bounds(node)
    bounds = torch.tensor([min(low, high), high], dtype=torch.float32)
    rounded = torch.clamp(torch.round(bounds * (1.0 / scale.scale)) + scale.zero_point, *INTEGER_RANGES[scale.dtype])
    return int(rounded[0]), int(rounded[1])


def _bounds(node: Node) -> tuple[float, float]:
    if operator_name(node) == "aten.relu.default":
        return 0.0, math.inf
    low, high = ("min_val", "max_val") if "hardtanh" in operator_name(node) else ("min", "max")
    given = argument(node, low), argument(node, high)
    return -math.inf if given[0] is None else given[0], math.inf if given[1] is None else given[1]
