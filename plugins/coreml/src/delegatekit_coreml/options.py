"""The options of the Core ML backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import leave_out_option

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
