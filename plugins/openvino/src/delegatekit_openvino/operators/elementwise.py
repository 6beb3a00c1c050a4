"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.composed.rows import elementwise_rows
from delegatekit_toolkit.constraints import no_nan
from delegatekit_toolkit.narrowing import narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Lower, ModelBuilder, Value
from .common import ANY, BITS, NUMBERS, clamp, composed, floating, lost_nan, own, tensor


def _clamp(b: ModelBuilder, call: Call) -> Value:
    return own(b, call, clamp(b, floating(b, call), *bounds_of(call)))


def _to_type(b: ModelBuilder, call: Call) -> Value:
    return own(b, call, b.cast(tensor(b, call), call.result.dtype))


ROWS: Final[tuple[Row[Lower], ...]] = (
    *elementwise_rows(composed, ANY, NUMBERS, lost_nan=lost_nan, bits=BITS),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, numbers_fit, no_nan(), special_values=lost_nan),
    row("_to_copy.default", _to_type, ANY, special_values=narrowed),
)
