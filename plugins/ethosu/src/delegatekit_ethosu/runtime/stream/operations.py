"""The operations of a command stream as data: their inputs, computation and outputs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np


class Rounding(IntEnum):
    """Rounding of a scaled value. The values are those of the registers."""

    #: Half up; when the shift is beyond 31, twice: by 31 bits away from zero first. TensorFlow Lite's.
    DOUBLE = 0
    TRUNCATE = 1
    #: Half up: floor(x + 1/2).
    NATURAL = 2


class Upscale(IntEnum):
    """Doubling of an input in height and width. The values are those of the registers."""

    NONE = 0
    NEAREST = 1
    #: Zeros between the elements: the input of a transposed convolution.
    ZEROS = 2


class PoolMode(IntEnum):
    """Reduction of a pool's window. The values are the parameters of OP_POOL."""

    MAX = 0
    AVERAGE = 1
    REDUCE_SUM = 2


class ElementwiseMode(IntEnum):
    """Operation on each pair of elements, or on each one. The values are the parameters of OP_ELEMENTWISE."""

    MUL = 0
    ADD = 1
    SUB = 2
    MIN = 3
    MAX = 4
    LRELU = 5
    ABS = 6
    CLZ = 7
    SHR = 8
    SHL = 9


@dataclass(frozen=True)
class FeatureMap:
    """A tensor [height, width, depth] in memory: up to four tiles, each with its own base address.

    Tile 0 has the elements left of `tile_width` and above `tile_heights[0]`; tile 1 those to the right, above
    `tile_heights[1]`; tiles 2 and 3 are below them. Strides are in bytes and may be negative.
    """

    name: str
    shape: tuple[int, int, int]
    dtype: np.dtype[np.generic]
    #: Channels in groups of 16, `stride_c` apart (NHCWB16); else an element's channels are contiguous (NHWC).
    bricks: bool
    region: int
    #: Of each tile.
    bases: tuple[int, ...]
    tile_heights: tuple[int, int]
    tile_width: int
    stride_y: int
    stride_x: int
    stride_c: int
    zero_point: int


@dataclass(frozen=True)
class Kernel:
    """A window: (y, x) each; padding is (top, left, bottom, right), counted in the upscaled input."""

    size: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]


@dataclass(frozen=True)
class Range:
    """Bytes of a region."""

    region: int
    base: int
    length: int


@dataclass(frozen=True)
class Scale:
    """A multiplier, a right shift and the rounding of the result."""

    multiplier: int
    shift: int
    rounding: Rounding


@dataclass(frozen=True)
class WeightOrder:
    """The parameters of the order of weights in a stream, besides their shape [depth, height, width, input depth]."""

    macs: int
    shape: tuple[int, int, int, int]
    dilation: tuple[int, int]
    block_depth: int
    input_bits: int
    depthwise: bool
    part_kernel_first: bool


@dataclass(frozen=True)
class Activation:
    """The last step: a clamp, then a table look-up if there is one."""

    #: None: the range of the output's type.
    clamp: tuple[int, int] | None
    table: int | None


@dataclass(frozen=True)
class Convolution:
    """OP_CONV and OP_DEPTHWISE: bias, multiplier and shift of each channel come with the weights."""

    where: str
    ifm: FeatureMap
    ofm: FeatureMap
    kernel: Kernel
    upscale: Upscale
    weights: Range
    order: WeightOrder
    scales: Range
    rounding: Rounding
    accumulator_bits: int
    activation: Activation


@dataclass(frozen=True)
class Pool:
    """OP_POOL. Scales are those of the channels (a range), one for all, or none: a mean of the elements not padded."""

    where: str
    mode: PoolMode
    ifm: FeatureMap
    ofm: FeatureMap
    kernel: Kernel
    upscale: Upscale
    scale: Scale | Range | None
    rounding: Rounding
    activation: Activation


@dataclass(frozen=True)
class Elementwise:
    """OP_ELEMENTWISE. The second operand is a feature map, a number, or none; it is broadcast to the first."""

    where: str
    mode: ElementwiseMode
    ifm: FeatureMap
    ifm2: FeatureMap | int | None
    ofm: FeatureMap
    #: True if the second operand comes first: b - a.
    reverse: bool
    #: Of the operands of ADD and SUB, in the order of the computation. See `elementwise.operands`.
    operand_scales: tuple[Scale, Scale] | None
    scale: Scale | None
    rounding: Rounding
    activation: Activation


@dataclass(frozen=True)
class Copy:
    """OP_DMA_START: bytes from one region to another, or to the NPU's internal memory, region None."""

    where: str
    source: Range
    region: int | None
    base: int


Operation: TypeAlias = Convolution | Pool | Elementwise | Copy
