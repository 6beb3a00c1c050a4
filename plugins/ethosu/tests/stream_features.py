"""The names of the features that operations need, as listed in the documentation (`coverage`)."""

from __future__ import annotations

from collections.abc import Iterator

from delegatekit_ethosu.runtime.stream.coverage import POOLS, ROUNDINGS, UPSCALES
from delegatekit_ethosu.runtime.stream.operations import (
    Convolution,
    Copy,
    Elementwise,
    FeatureMap,
    Operation,
    Pool,
    Range,
)


def features(operation: Operation) -> Iterator[str]:
    """The names of the features that an operation needs."""
    if isinstance(operation, Copy):
        yield "DMA: tables" if operation.region is None else "DMA: between regions"
        return
    for feature_map in (operation.ifm, operation.ofm, getattr(operation, "ifm2", None)):
        if isinstance(feature_map, FeatureMap):
            yield from _of_feature_map(feature_map)
    yield ROUNDINGS[operation.rounding]
    activation = operation.activation
    if activation.clamp is not None:
        yield "activation: clamp"
    if activation.table is not None:
        yield f"activation: table of {8 * operation.ofm.dtype.itemsize} bits"
    if isinstance(operation, Convolution):
        yield from _of_convolution(operation)
    elif isinstance(operation, Pool):
        yield from _of_pool(operation)
    else:
        yield from _of_elementwise(operation)


def _of_feature_map(feature_map: FeatureMap) -> Iterator[str]:
    yield f"type: {feature_map.dtype}"
    yield "format: NHCWB16" if feature_map.bricks else "format: NHWC"
    if feature_map.stride_y < 0 or feature_map.stride_x < 0:
        yield "feature map: negative stride"
    if feature_map.shape[0] > feature_map.tile_heights[0] or feature_map.shape[1] > feature_map.tile_width:
        yield "feature map: tiles"


def _of_convolution(operation: Convolution) -> Iterator[str]:
    order = "part kernel first" if operation.order.part_kernel_first else "depth first"
    yield f"convolution: {'depthwise' if operation.order.depthwise else order}"
    yield "scale: of each channel"
    if operation.kernel.stride != (1, 1):
        yield "convolution: stride beyond 1"
    if operation.kernel.dilation != (1, 1):
        yield "convolution: dilation"
    if operation.accumulator_bits == 40:
        yield "convolution: 40-bit accumulators"
    if operation.upscale:
        yield UPSCALES[operation.upscale]


def _of_pool(operation: Pool) -> Iterator[str]:
    yield POOLS[operation.mode]
    if operation.scale is None:
        yield "pool: mean of what is not padding"
    else:
        yield "scale: of each channel" if isinstance(operation.scale, Range) else "scale: one for all"
    if operation.upscale:
        yield UPSCALES[operation.upscale]


def _of_elementwise(operation: Elementwise) -> Iterator[str]:
    yield f"elementwise: {operation.mode.name}"
    if isinstance(operation.ifm2, int):
        yield "second operand: a number"
    elif operation.ifm2 is not None and operation.ifm2.shape != operation.ofm.shape:
        yield "second operand: broadcast"
    if operation.reverse:
        yield "second operand: first in order"
    if operation.operand_scales is not None:
        first, second = operation.operand_scales
        one = f"one of 32 bits, elements of {8 * operation.ifm.dtype.itemsize}"
        yield f"operand scaling: {'both of 16 bits' if first == second else one}"
    if operation.scale is not None:
        yield "scale: one for all"
