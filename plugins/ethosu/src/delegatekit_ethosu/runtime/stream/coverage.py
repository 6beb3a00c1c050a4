"""Features of the Ethos-U55 that are executed on the host, by name: for the documentation, and checked by tests."""

from __future__ import annotations

from typing import Final

from .operations import ElementwiseMode, PoolMode, Rounding, Upscale
from .plan import REFUSED_MODES

UPSCALES: Final = {Upscale.NEAREST: "upscaling: nearest", Upscale.ZEROS: "upscaling: zeros (transposed convolution)"}
ROUNDINGS: Final = {Rounding.NATURAL: "rounding: natural", Rounding.DOUBLE: "rounding: double"}
POOLS: Final = {PoolMode.MAX: "pool: maximum", PoolMode.AVERAGE: "pool: mean", PoolMode.REDUCE_SUM: "pool: sum"}
_TYPES: Final = ("int8", "uint8", "int16", "uint16", "int32")

#: The executed features.
EXECUTED: Final = (
    "convolution: part kernel first",
    "convolution: depth first",
    "convolution: depthwise",
    "convolution: stride beyond 1",
    "convolution: dilation",
    "convolution: 40-bit accumulators",
    *POOLS.values(),
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
    *ROUNDINGS.values(),
    *UPSCALES.values(),
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

#: The refused features, with the reasons.
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
    """A Markdown table of all executed or refused features."""
    rows = [(name, "yes") for name in EXECUTED] + [(name, f"no: {reason}") for name, reason in REFUSED.items()]
    lines = ["| Ethos-U55 | executed on the host |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows)]
    return "\n".join(lines) + "\n"
