"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.composed.rows import elementwise_rows
from delegatekit_toolkit.constraints import no_nan
from delegatekit_toolkit.narrowing import numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, Value, VgfBuilder
from .common import ANY, BITS, EXTREMES, MOVED, NUMBERS, clamp, composed, result_type, tensor


def _clamp(b: VgfBuilder, call: Call) -> Value:
    return clamp(b, b.cast(tensor(b, call), result_type(call)), *bounds_of(call))


def _to_type(b: VgfBuilder, call: Call) -> Value:
    return b.cast(tensor(b, call), result_type(call))


ROWS: Final[tuple[Row[Lower], ...]] = (
    *elementwise_rows(composed, ANY, NUMBERS, quotients=EXTREMES, bits=BITS),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, numbers_fit, no_nan()),
    row("_to_copy.default", _to_type, MOVED),
)
