"""The integer arithmetic of TOSA: scales as multipliers and shifts, rescaling, averages and look-up tables.

All of it follows the specification bit by bit; arrays are NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from delegatekit_api import LoweringError

from .types import INTEGER_RANGES, Array, DType

#: The range of RESCALE's shifts.
MIN_SHIFT, MAX_SHIFT = 2, 62


def multiplier_and_shift(scale: float, *, bits: int = 32) -> tuple[int, int]:
    """The integers with which RESCALE multiplies by a positive scale: scale = multiplier / 2**shift.

    The multiplier has `bits` - 1 significant bits (32, or 16 for int48 inputs); fewer for scales below 2**-31. Raises
    LoweringError for a scale that is too large (2**29; 2**13 with 16 bits), not positive or not finite.
    """
    if not (math.isfinite(scale) and scale > 0):
        raise LoweringError(f"the scale {scale} is not a positive number")
    mantissa, exponent = math.frexp(scale)
    multiplier = round(mantissa * (1 << bits - 1))
    if multiplier == 1 << bits - 1:
        multiplier, exponent = multiplier // 2, exponent + 1
    shift = bits - 1 - exponent
    if shift < MIN_SHIFT:
        raise LoweringError(f"the scale {scale} is too large for TOSA (shift {shift}, at least {MIN_SHIFT})")
    if shift > MAX_SHIFT:
        multiplier, shift = multiplier >> min(31, shift - MAX_SHIFT), MAX_SHIFT
    return multiplier, shift


def multipliers_and_shifts(scales: Sequence[float] | Array, *, bits: int = 32) -> tuple[Array, Array]:
    """`multiplier_and_shift` of each scale: int32 (int16 for 16 bits) and int8 arrays."""
    pairs = [multiplier_and_shift(float(scale), bits=bits) for scale in scales]
    multipliers, shifts = zip(*pairs, strict=True) if pairs else ((), ())
    return np.array(multipliers, np.int32 if bits == 32 else np.int16), np.array(shifts, np.int8)


def saturate(values: Array, dtype: DType) -> Array:
    """Values saturated to the range of an integer type, still wide."""
    low, high = INTEGER_RANGES[dtype]
    return np.clip(values, low, high)


def apply_scale(values: Array, multiplier: Any, shift: Any) -> Array:
    """values * multiplier / 2**shift, rounded half up (SINGLE_ROUND), int64.

    `values` fit 48 bits, multiplier and shift are integers or arrays that broadcast against the last axis.
    """
    wide = np.asarray(values, np.int64)
    factor, places = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    # Otherwise the products do not fit 64 bits.
    if wide.size and int(np.abs(wide).max()) > 1 << 32 and int(np.abs(factor).max()) >= 1 << 15:
        raise LoweringError("a value of more than 32 bits is rescaled with a multiplier of 32 bits")
    scaled: Array = (wide * factor + (np.int64(1) << (places - 1))) >> places
    return scaled


def rescale(
    values: Array, multiplier: Any, shift: Any, *, input_zero: int = 0, output_zero: int = 0, dtype: DType = DType.INT8
) -> Array:
    """RESCALE with SINGLE_ROUND; int64 values within the range of `dtype`."""
    scaled = apply_scale(np.asarray(values, np.int64) - input_zero, multiplier, shift)
    return saturate(scaled + output_zero, dtype)


def quantize(values: Array, scale: float, zero_point: int, dtype: DType = DType.INT8) -> Array:
    """round(values / scale) + zero_point, half to even and saturated as in PyTorch; int64."""
    return saturate(np.rint(np.asarray(values, np.float64) / scale).astype(np.int64) + zero_point, dtype)


def table(
    function: Callable[[Array], Array],
    input_scale: float,
    input_zero: int,
    output_scale: float,
    output_zero: int,
) -> Array:
    """The 256 entries of an int8 TABLE for a function of real numbers: entry i is the result for i - 128."""
    points = (np.arange(-128, 128, dtype=np.float64) - input_zero) * input_scale
    return quantize(function(points), output_scale, output_zero).astype(np.int8)
