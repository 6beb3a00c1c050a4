"""The options of the XNNPACK backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option
from delegatekit_toolkit.options import at_least, leave_out_option

#: Fits the second-level cache of most cores that run large products, with room for the rows and their results.
BLOCK_BYTES = 768 << 10


@dataclass(frozen=True)
class XnnpackOptions(BackendOptions):
    """Options for lowering to XNNPACK. The blob needs none at run time."""

    leave_out: frozenset[str] = leave_out_option()
    per_operator_partitions: bool = option(
        False,
        help="One delegate for each operator (reshapes and other passengers stay outside): to find the operator that "
        "computes something unexpected. Slow.",
    )
    half_precision: str = option(
        "float16",
        help='How float16 programs compute: "float16" uses XNNPACK\'s float16 operators where they are precise enough; '
        "sums of more than 1024 terms, and operators that are several of XNNPACK's, compute in float32. "
        '"float32" computes all in float32 and rounds the results. Weights are stored as float16 either way.',
        choices=("float16", "float32"),
    )
    weights: str = option(
        "float32",
        help='How the constant weights of linear layers and convolutions in float32 are stored: "float16" halves the '
        "file and computes in float32 with the weights rounded. A weight with numbers that float16 cannot hold stays "
        "float32. Weights of bfloat16 programs are stored likewise.",
        choices=("float32", "float16"),
    )
    exact_special_values: bool = option(
        False,
        help="Refuse operators whose result for NaN, infinite or huge inputs differs from PyTorch's "
        "(maximum drops a NaN, exp makes 0 of it, ...).",
    )
    block_bytes: int = option(
        BLOCK_BYTES,
        help="Large matrix products are computed in blocks whose weights are at most this many bytes, so that they "
        "stay in a core's cache. 0: in one piece.",
        check=at_least(0),
    )
