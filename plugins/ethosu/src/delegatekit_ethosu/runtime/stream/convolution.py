"""Convolutions and depthwise convolutions on whole feature maps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from delegatekit_api import ExecutionError

from .arithmetic import finish, scale
from .memory import Integers, Memory
from .operations import Convolution
from .weights import decode_scales
from .windows import padded, windows

Floats = npt.NDArray[np.float64]


def convolve(operation: Convolution, memory: Memory, weights: Floats) -> None:
    """Execute a convolution with `weights` [depth, height, width, input depth]."""
    where = operation.where
    ifm, ofm = operation.ifm, operation.ofm
    values = memory.read(ifm, where) - ifm.zero_point
    # The sums are of at most 65536 products of 17 and 9 bits: in double precision they are exact.
    inputs = padded(values.astype(np.float64), operation.kernel, operation.upscale, 0.0)
    height, width, depth = ofm.shape
    sums = np.zeros((height, width, depth))
    for y, x, window in windows(inputs, operation.kernel, height, width):
        if operation.order.depthwise:
            sums += window * weights[:, y, x, 0]
        else:
            sums += (window.reshape(height * width, -1) @ weights[:, y, x].T).reshape(sums.shape)
    bias, multiplier, shift = decode_scales(memory.bytes(operation.scales, where), depth, where)
    accumulated: Integers = sums.astype(np.int64) + bias
    if int(np.abs(accumulated).max()) >> (operation.accumulator_bits - 1):
        raise ExecutionError(f"an accumulator passes {operation.accumulator_bits} bits", where=where)
    results = scale(accumulated, multiplier, shift, operation.rounding)
    memory.store(ofm, finish(results, ofm, operation.activation, memory.internal, where), where)
