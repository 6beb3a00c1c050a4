"""The options of the Core ML backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import at_least, between, leave_out_option

from .targets import TARGETS


@dataclass(frozen=True)
class CoreMLOptions(BackendOptions):
    """What a user may choose about lowering to Core ML."""

    leave_out: frozenset[str] = leave_out_option()
    target: str = option(
        "ios17",
        help="The oldest system that the program is for.",
        choices=tuple(TARGETS),
    )
    precision: str = option(
        "float16",
        help="What float32 is computed in on the device, weights included: the Neural Engine has float16 only. "
        "Inputs and outputs stay float32.",
        choices=("float16", "float32"),
    )
    float32_operators: frozenset[str] = option(
        frozenset(),
        help="Operators that are computed in float32 where everything else is in float16: "
        '"aten._softmax.default", "aten._softmax" or "_softmax".',
    )
    compute_units: str = option(
        "all",
        help="Where the program may run.",
        choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"),
    )
    palettize: int = option(
        0,
        help="Bits of the indices into a table by which the constant floating-point weights of linear layers and "
        "convolutions are stored, if they have 2048 elements or more; the tables are found by k-means. 0: no tables. "
        "From ios16 on, 3 bits from ios18 on.",
        choices=(0, 1, 2, 3, 4, 6, 8),
    )
    palette_channels: int = option(
        0,
        help="So many output channels share a table (where they divide the channels of a weight); 0: all of them. "
        "From ios18 on.",
        check=at_least(0),
    )
    prune: float = option(
        0.0,
        help="The share of the numbers nearest to zero that are left out of these weights. From ios16 on.",
        check=between(0, 1),
    )
