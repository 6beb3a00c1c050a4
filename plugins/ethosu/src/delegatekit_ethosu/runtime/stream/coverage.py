"""What of the Ethos-U55 is executed on the host, by name: for the documentation, and for tests to hold it to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from .operations import (
    Convolution,
    Copy,
    Elementwise,
    ElementwiseMode,
    FeatureMap,
    Operation,
    Pool,
    PoolMode,
    Range,
    Rounding,
    Upscale,
)
from .plan import REFUSED_MODES

_UPSCALES: Final = {Upscale.NEAREST: "upscaling: nearest", Upscale.ZEROS: "upscaling: zeros (transposed convolution)"}
_ROUNDINGS: Final = {Rounding.NATURAL: "rounding: natural", Rounding.DOUBLE: "rounding: double"}
_POOLS: Final = {PoolMode.MAX: "pool: maximum", PoolMode.AVERAGE: "pool: mean", PoolMode.REDUCE_SUM: "pool: sum"}
_TYPES: Final = ("int8", "uint8", "int16", "uint16", "int32")

#: What is executed.
EXECUTED: Final = (
    "convolution: part kernel first",
    "convolution: depth first",
    "convolution: depthwise",
    "convolution: stride beyond 1",
    "convolution: dilation",
    "convolution: 40-bit accumulators",
    *_POOLS.values(),
    "pool: mean of what is not padding",
    *(f"elementwise: {mode.name}" for mode in ElementwiseMode if mode not in REFUSED_MODES),
    "second operand: broadcast",
    "second operand: a number",
    "second operand: first in order",
    "operand scaling: one of 32 bits, elements of 8",
    "operand scaling: one of 32 bits, elements of 16",
    "operand scaling: both of 16 bits",
    "scale: of each channel",
    "scale: one for all",
    *_ROUNDINGS.values(),
    *_UPSCALES.values(),
    "activation: clamp",
    "activation: table of 8 bits",
    "activation: table of 16 bits",
    *(f"type: {name}" for name in _TYPES),
    "format: NHWC",
    "format: NHCWB16",
    "feature map: tiles",
    "feature map: negative stride",
    "DMA: between regions",
    "DMA: tables",
)

#: What is refused, and why.
REFUSED: Final = {
    **{f"elementwise: {mode.name}": reason for mode, reason in REFUSED_MODES.items()},
    "activation: TANH, SIGMOID": "the compiler makes tables of these",
    "activation: table of 16 bits that is rounded between its entries": "no TOSA operator becomes one",
    "activation: table of 32 bits": "no TOSA operator becomes one",
    "activation: clamp to another type's range": "no TOSA operator becomes one",
    "rounding: truncate": "no TOSA operator becomes one",
    "operand scaling: both of 16 bits, different": "no TOSA operator becomes one",
    "accumulators: 16-bit floating point": "no TOSA operator becomes one",
    "DMA: two and three dimensions": "an Ethos-U55 has only one",
    "OP_IRQ, OP_PMU_MASK": "the compiler makes none",
}


def listing() -> str:
    """A Markdown table of all that is executed or refused."""
    rows = [(name, "yes") for name in EXECUTED] + [(name, f"no: {reason}") for name, reason in REFUSED.items()]
    lines = ["| Ethos-U55 | executed on the host |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    return "\n".join(lines) + "\n"


def features(operation: Operation) -> Iterator[str]:
    """The names of what an operation needs."""
    if isinstance(operation, Copy):
        yield "DMA: tables" if operation.region is None else "DMA: between regions"
        return
    for feature_map in (operation.ifm, operation.ofm, getattr(operation, "ifm2", None)):
        if isinstance(feature_map, FeatureMap):
            yield from _of_feature_map(feature_map)
    yield _ROUNDINGS[operation.rounding]
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
        yield _UPSCALES[operation.upscale]


def _of_pool(operation: Pool) -> Iterator[str]:
    yield _POOLS[operation.mode]
    if operation.scale is None:
        yield "pool: mean of what is not padding"
    else:
        yield "scale: of each channel" if isinstance(operation.scale, Range) else "scale: one for all"
    if operation.upscale:
        yield _UPSCALES[operation.upscale]


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
