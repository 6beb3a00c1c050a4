"""Weights and scales in memory format: compressed, in the order in which the NPU multiplies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from delegatekit_api import FormatError

from .decompressor import decompress
from .memory import Bytes, Integers
from .operations import WeightOrder

#: Depth of the blocks of the input that a multiply-accumulate unit takes at once, and of the output by MACs.
_INPUT_UNIT: Final = 8
_OUTPUT_UNIT: Final = {32: 4, 64: 8, 128: 8, 256: 8}
#: Kernels are split into parts of at most this height and width, before dilation.
_PART: Final = 8
#: Bytes of one channel's scale: bias (40 bits), multiplier (32), shift (6).
SCALE_BYTES: Final = 10


def decode_weights(data: Bytes, order: WeightOrder, where: str) -> npt.NDArray[np.int16]:
    """The weights of a compressed stream, [depth, height, width, input depth] (input depth 1 if depthwise).

    Raises FormatError if the stream does not hold exactly the weights that `order` requires.
    """
    stream = decompress(data.tobytes(), where)
    if math.prod(order.shape) > len(stream):
        raise FormatError(f"the weight stream has only {len(stream)} values for {order.shape}", where=where)
    weights = np.zeros(order.shape, np.int16)
    place = 0
    for part, shape, axes in _parts(order):
        count = int(np.prod(shape))
        if place + count > len(stream):
            raise FormatError(f"the weight stream has only {len(stream)} values", where=where)
        target = weights[part]
        depth, height, width, inputs = target.shape
        # [output units, in the unit, elements, input units, in the unit]
        block = stream[place : place + count].reshape(shape).transpose(axes)
        block = block.reshape(shape[axes[0]] * shape[axes[1]], shape[axes[2]], -1)
        target[:] = block[:depth, : height * width, :inputs].reshape(target.shape)
        if np.count_nonzero(target) != np.count_nonzero(block):
            raise FormatError("the weight stream has values where only padding is: its order is unknown", where=where)
        place += count
    if place != len(stream):
        raise FormatError(f"the weight stream has {len(stream)} values, {place} are read", where=where)
    return weights


_Part = tuple[tuple[slice, ...], tuple[int, ...], tuple[int, ...]]


def _parts(order: WeightOrder) -> Iterator[_Part]:
    """The pieces of the stream in order: the weights, the stream's axes, and the transposition of each.

    The transposed axes are: units of the output, channels of a unit, kernel elements, units of the input, channels.
    """
    depth, height, width, inputs = order.shape
    unit = _OUTPUT_UNIT[order.macs]
    wide = order.input_bits == 16
    block = 16 if order.part_kernel_first or wide else 32
    # Kernel elements are padded to a multiple that fills the multipliers.
    multiple = 4 if order.depthwise else (2 if wide else 4) if order.part_kernel_first else 1
    step_y, step_x = _PART // order.dilation[0], _PART // order.dilation[1]
    for first in range(0, depth, order.block_depth):
        last = min(first + order.block_depth, depth)
        units = -(-(last - first) // unit)
        for first_input in range(0, inputs, block):
            last_input = min(first_input + block, inputs)
            # Depth first, a block of the input is padded to its whole depth.
            length = last_input - first_input if order.part_kernel_first else block
            input_units = 1 if order.depthwise else -(-length // _INPUT_UNIT)
            input_unit = 1 if order.depthwise else _INPUT_UNIT
            for y in range(0, height, step_y):
                for x in range(0, width, step_x):
                    rows, columns = min(step_y, height - y), min(step_x, width - x)
                    elements = -(-rows * columns // multiple) * multiple
                    place = (
                        slice(first, last),
                        slice(y, y + rows),
                        slice(x, x + columns),
                        slice(first_input, last_input),
                    )
                    if order.part_kernel_first:
                        yield place, (input_units, units, elements, unit, input_unit), (1, 3, 2, 0, 4)
                    else:
                        yield place, (units, elements, input_units, unit, input_unit), (0, 3, 1, 2, 4)


def decode_scales(data: Bytes, depth: int, where: str) -> tuple[Integers, Integers, Integers]:
    """Bias, multiplier and shift of each of `depth` channels."""
    if len(data) < depth * SCALE_BYTES:
        raise FormatError(f"{len(data)} bytes do not hold the scales of {depth} channels", where=where)
    table = data[: depth * SCALE_BYTES].reshape(depth, SCALE_BYTES).astype(np.int64)
    if (table[:, 9] >> 6).any():
        raise FormatError("a scale has bits beyond its shift", where=where)
    bias = (table[:, :5] << (8 * np.arange(5))).sum(1)
    bias -= (bias >> 39) << 40
    multiplier = (table[:, 5:9] << (8 * np.arange(4))).sum(1)
    return bias, multiplier, table[:, 9]
