"""Numbers and their integers: the dispatches that quantize and dequantize, and their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ...ir.graph import Tensor
from ...ir.types import DataType
from ...shaders.numbers import Affine
from ...targets import LEAST_SCALE
from ..calls import Reader
from ..memory import Value
from ..strided import padded, walk
from ..tape import Tape
from ..transfer import constant_array

Array: TypeAlias = "np.ndarray[Any, Any]"

#: The integers of a type for quantization.
RANGES: Final = {DataType.INT8: (-128, 127), DataType.UINT8: (0, 255)}
#: ExecuTorch's lowering pads constants to a multiple of 4, or of 8.
_PADDED: Final = 8


@dataclass(frozen=True)
class Step:
    """An integer represents the number (integer - zero_point) * scale."""

    scale: float
    zero_point: int

    @property
    def inverse(self) -> float:
        """The factor for numbers: PyTorch does not divide."""
        return 1.0 / self.scale


@dataclass(frozen=True)
class Blocks:
    """Scales of blocks of elements, and zero points (without any: 0), of `shape`, broadcast to `elements`."""

    scales: Value
    zero_points: Value | None
    #: The shape of the elements, with axes of several blocks split in two.
    elements: tuple[int, ...]
    shape: tuple[int, ...]


def affine(
    tape: Tape,
    operation: Affine,
    source: Value,
    target: Value,
    how: Step | Blocks,
    bounds: tuple[int, int] = (-128, 127),
) -> None:
    """Dispatch the conversion from numbers to integers within bounds, back, or both."""
    elements, shape = (how.elements, how.shape) if isinstance(how, Blocks) else (source.shape, ())
    steps = walk(tape, elements, elements, shape)
    common, scales, zero_points = how, source, source
    if isinstance(how, Blocks):
        common, scales, zero_points = Step(1.0, 0), how.scales, how.zero_points or source
    assert isinstance(common, Step)
    numbers = (common.scale, common.inverse, float(common.zero_point), *map(float, bounds))
    push = (steps.items, *numbers, *padded(steps.sizes), *padded(steps.steps[1]))
    given = (isinstance(how, Blocks), isinstance(how, Blocks) and how.zero_points is not None)
    constants = (target.is_half, operation, len(steps.sizes), steps.wide, steps.single[1], *given)
    tape.dispatch("affine", (source, scales, zero_points, target), push, constants, items=steps.items)


@dataclass(frozen=True)
class Sums:
    """The scales of sums of integer products, along the channels of a value (..., channels, inner)."""

    #: For each channel, the factor of its sums.
    factors: Value
    bias: Value | None
    inner: int = 1


def requantize(
    tape: Tape,
    source: Value,
    target: Value,
    given: Step,
    to: Step,
    bounds: tuple[int, int],
    *,
    sums: Sums | None = None,
    relu: bool = False,
) -> None:
    """Dispatch the conversion from integers of one scale, or from sums of their products, to another scale."""
    items = -(-target.count // 4)
    what = sums or Sums(source, None)  # not read
    numbers = (float(given.zero_point), given.scale, to.inverse, float(to.zero_point), *map(float, bounds))
    push = (items, what.factors.count, what.inner, *numbers)
    constants = (target.is_half, sums is not None, what.bias is not None, relu, what.inner % 4 == 0)
    tape.dispatch("requantize", (source, what.factors, what.bias or source, target), push, constants, items=items)


def whole_numbers(tape: Tape, value: Value, zero_point: int) -> Value:
    """The integers minus their zero point, as float32: zeros around an image are 0 then, and sums of products are exact
    up to 2^24."""
    made = tape.scratch(value.shape)
    affine(tape, Affine.DEQUANTIZE, value, made, Step(1.0, zero_point))
    return made


# -- arguments ---------------------------------------------------------------------------------------------------------


def read_step(call: Reader, position: int, datatype: DataType, *, inverted: bool = False) -> Step:
    """The scale (or its inverse) at a position, and the zero point after it, for integers of a type."""
    scale, zero_point = _checked(call, call.number(position)), call.integer(position + 1)
    low, high = integers(call, datatype)
    if not low <= zero_point <= high:
        raise call.error(f"has the zero point {zero_point} for {datatype.name}")
    return Step(1 / scale if inverted else scale, zero_point)


def _checked(call: Reader, scale: float) -> float:
    if not LEAST_SCALE <= scale <= 1 / LEAST_SCALE:
        raise call.error(f"has the scale {scale}")
    return scale


def integers(call: Reader, datatype: DataType) -> tuple[int, int]:
    """The minimum and maximum integer of int8 or uint8."""
    if datatype not in RANGES:
        raise call.error(f"has integers of the type {datatype.name}")
    return RANGES[datatype]


def bounds_of(call: Reader, position: int, bounds: tuple[int, int]) -> tuple[int, int]:
    """Two whole numbers, the bounds of integers, within those of the type; the type's if they are left out."""
    low, high = (call.number(position + index, float(bound)) for index, bound in enumerate(bounds))
    if not (low.is_integer() and high.is_integer() and bounds[0] <= low <= high <= bounds[1]):
        raise call.error(f"has integers from {low} to {high}, of a type from {bounds[0]} to {bounds[1]}")
    return int(low), int(high)


def activation(call: Reader, position: int) -> bool:
    """True if negative results become 0."""
    found = "none" if call.is_none(position) else call.raw(position)
    if found not in ("none", "relu"):
        raise call.error(f"has the activation {found!r:.40}")
    return found == "relu"


def float_result(tape: Tape, call: Reader, shape: Sequence[int]) -> Value:
    """The floating-point result."""
    target = tape.result(call.result, shape)
    if not target.is_float:
        raise call.error("has integers as its result")
    return target


def floats(call: Reader, position: int) -> Value:
    """A floating-point tensor."""
    value = call.tensor(position)
    if not value.is_float:
        raise call.error(f"argument {position} has integers")
    return value


def fits(size: int, needed: int) -> bool:
    """True if an axis of a constant has the required size, or is padded."""
    return needed <= size <= -(-needed // _PADDED) * _PADDED


def scales_of(call: Reader, position: int, *needed: int) -> Tensor:
    """A constant of scales, of at least these sizes along its axes; all of these are checked."""
    found = call.declared(position)
    if found.data is None or not found.datatype.is_float:
        raise call.error(f"argument {position} is not a constant of scales")
    check_sizes(call, position, *needed)
    check_scales(call, constant_array(found.data)[tuple(slice(size) for size in needed)])
    return found


def check_scales(call: Reader, numbers: Array) -> None:
    """Every scale must be finite and above 0."""
    if numbers.size:
        _checked(call, float(numbers.min()))
        _checked(call, float(numbers.max()))


def check_sizes(call: Reader, position: int, *needed: int) -> None:
    """Check that the axes of an argument have at least these sizes, and the last one at most padding beyond."""
    sizes = call.declared(position).sizes
    if len(sizes) != len(needed) or sizes[:-1] != needed[:-1] or not fits(sizes[-1], needed[-1]):
        raise call.error(f"argument {position} has the sizes {sizes}: {needed} are needed")


def check_sums(call: Reader, position: int, *needed: int) -> None:
    """Check that sums of weights are whole numbers. They are for devices that do not subtract zero points first."""
    if call.declared(position).datatype.is_float:
        raise call.error(f"argument {position} has floating-point numbers as sums of integers")
    check_sizes(call, position, *needed)


def bias_of(call: Reader, position: int, columns: int) -> Value | None:
    """A number for each column, or nothing."""
    if call.is_none(position):
        return None
    check_sizes(call, position, columns)
    return floats(call, position)


def factors_of(tape: Tape, scales: Tensor, count: int, scale: float) -> Value:
    """The scales of channels, each times the scale of the operand that is multiplied with the weights."""

    def pack(elements: Array) -> Array:
        found: Array = (elements[:count].astype(np.float64) * scale).astype(np.float32)
        return found

    return tape.constant(scales, (count,), ("factors", count, scale), pack)
