"""The options of the XNNPACK backend."""

from __future__ import annotations

from dataclasses import dataclass

from delegatekit_api import BackendOptions, option


@dataclass(frozen=True)
class XnnpackOptions(BackendOptions):
    """What a user may choose about lowering to XNNPACK. The blob needs no options at run time."""

    leave_out: frozenset[str] = option(
        frozenset(),
        help='Operators that the backend shall not take: "aten.add.Tensor", "aten.add" or "add".',
    )
    per_operator_partitions: bool = option(
        False,
        help="One delegate for each operator (reshapes and other passengers stay outside): to find the operator that "
        "computes something unexpected. Slow.",
    )
    exact_special_values: bool = option(
        False,
        help="Refuse operators whose result for NaN, infinite or huge inputs differs from PyTorch's "
        "(maximum drops a NaN, exp makes 0 of it, ...).",
    )
