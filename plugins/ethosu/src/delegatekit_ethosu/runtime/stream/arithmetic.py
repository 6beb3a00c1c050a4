"""The NPU's arithmetic on whole arrays: scaling, rounding, the clamp and the table at the end of each operation."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegatekit_api import ExecutionError

from .memory import TABLES_BYTES, Bytes, Integers
from .operations import Activation, FeatureMap, Rounding

#: The range of 64 bits.
_LARGEST: Final = np.iinfo(np.int64).max
#: Of the table of 16-bit activations: 512 pairs of value and slope, 128 inputs apart.
_STEP_BITS: Final = 7


def scale(values: Integers, multiplier: Integers | int, shift: Integers | int, rounding: Rounding) -> Integers:
    """`values` times `multiplier` by 2 to the power of -`shift`, rounded. Per-channel arrays are along the last axis.

    The product has as many bits as it needs.
    """
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    largest = int(np.abs(values).max(initial=0)) * int(multiplier.max()) + int(half.max()) + (1 << 30)
    if largest > _LARGEST:
        # Python's integers: slow, and only for 16-bit networks.
        values, multiplier, half, shift = (item.astype(object) for item in (values, multiplier, half, shift))
    product = values * multiplier + half
    if rounding is Rounding.DOUBLE:
        twice = np.where(values >= 0, 1 << 30, -(1 << 30))
        product = product + np.where(shift > 31, twice, 0)
    shifted: Integers = (product >> shift).astype(np.int64)
    return shifted


def finish(values: Integers, ofm: FeatureMap, activation: Activation, internal: Bytes, where: str) -> Integers:
    """Final steps from scaled results to the output: zero point, clamp, table.

    Raises ExecutionError for a value that does not fit the output's type: the NPU's result is undocumented. The
    reference calls a program with such a value unpredictable.
    """
    values = values + ofm.zero_point
    if activation.clamp is not None:
        values = values.clip(*activation.clamp)
    _check(values, ofm, where)
    if activation.table is not None:
        values = _look_up(values, ofm, activation.table, internal, where)
        _check(values, ofm, where)
    return values


def _check(values: Integers, ofm: FeatureMap, where: str) -> None:
    limits = np.iinfo(ofm.dtype)  # type: ignore[type-var]
    if values.min() < limits.min or values.max() > limits.max:
        raise ExecutionError(f"a result does not fit {ofm.dtype}", where=where)


def _look_up(values: Integers, ofm: FeatureMap, table: int, internal: Bytes, where: str) -> Integers:
    """Replace each value by its entry of table number `table`, which is in the last 2 KiB of the internal memory."""
    tables = internal[len(internal) - TABLES_BYTES :]
    values = values - np.iinfo(ofm.dtype).min  # type: ignore[type-var]
    if ofm.dtype.itemsize == 1:
        entries = tables[256 * table : 256 * (table + 1)].view(ofm.dtype)
        found: Integers = entries[values].astype(np.int64)
        return found
    pairs = tables.view("<i2").reshape(-1, 2).astype(np.int64)
    start, slope = np.moveaxis(pairs[values >> _STEP_BITS], -1, 0)
    between = slope * (values & ((1 << _STEP_BITS) - 1))
    if (between & ((1 << _STEP_BITS) - 1)).any():
        # The one operator that has such tables, ARGMAX, is exact.
        raise ExecutionError("a value between the entries of a table is rounded in a way that is unknown", where=where)
    interpolated: Integers = start + (between >> _STEP_BITS)
    return interpolated
