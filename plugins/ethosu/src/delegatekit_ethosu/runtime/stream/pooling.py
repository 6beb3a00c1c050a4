"""Pools: maxima, means, sums over channels; with a 1 by 1 window also copies, rescales and table look-ups."""

from __future__ import annotations

import numpy as np

from .arithmetic import finish, scale
from .memory import Integers, Memory
from .operations import Pool, PoolMode, Range
from .weights import decode_scales
from .windows import padded, windows


def pool(operation: Pool, memory: Memory) -> None:
    """Execute a pool."""
    where = operation.where
    ifm, ofm = operation.ifm, operation.ofm
    values = memory.read(ifm, where) - ifm.zero_point
    match operation.mode:
        case PoolMode.REDUCE_SUM:
            results = values.sum(2, keepdims=True)
        case PoolMode.MAX:
            results = _maxima(operation, values)
        case PoolMode.AVERAGE:
            results = _sums(operation, values)
    factors = operation.scale
    if factors is None:
        results = _means(operation, results)
    elif isinstance(factors, Range):
        bias, multiplier, shift = decode_scales(memory.bytes(factors, where), ofm.shape[2], where)
        results = scale(results + bias, multiplier, shift, operation.rounding)
    else:
        results = scale(results, factors.multiplier, factors.shift, factors.rounding)
    memory.store(ofm, finish(results, ofm, operation.activation, memory.internal, where), where)


def _maxima(operation: Pool, values: Integers) -> Integers:
    """The largest element of each window: never from the padding."""
    height, width, depth = operation.ofm.shape
    lowest = np.iinfo(np.int64).min
    results = np.full((height, width, depth), lowest)
    inputs = padded(values, operation.kernel, operation.upscale, lowest)
    for _, _, window in windows(inputs, operation.kernel, height, width):
        np.maximum(results, window, out=results)
    return results


def _sums(operation: Pool, values: Integers) -> Integers:
    height, width, depth = operation.ofm.shape
    results = np.zeros((height, width, depth), np.int64)
    inputs = padded(values, operation.kernel, operation.upscale, 0)
    for _, _, window in windows(inputs, operation.kernel, height, width):
        results += window
    return results


def _means(operation: Pool, sums: Integers) -> Integers:
    """Divide each sum by the number of elements in its window that are not padding."""
    height, width, _ = operation.ofm.shape
    counts = np.zeros((height, width, 1), np.int64)
    ones = np.ones((*operation.ifm.shape[:2], 1), np.int64)
    inputs = padded(ones, operation.kernel, operation.upscale, 0)
    for _, _, window in windows(inputs, operation.kernel, height, width):
        counts += window
    results = np.zeros_like(sums)
    for count in np.unique(counts):
        multiplier, shift = reciprocal(int(count))
        results = np.where(counts == count, scale(sums, multiplier, shift, operation.rounding), results)
    return results


def reciprocal(count: int) -> tuple[int, int]:
    """Multiplier and shift of a division by `count`: those that the compiler writes if nothing is padded."""
    bits = (count - 1).bit_length()
    return (((1 << 31) + 1) << bits) // count, 31 + bits
