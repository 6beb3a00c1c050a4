"""Elementwise operators: arithmetic, comparisons, logic, choices, conversions. Functions are in functions.py."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.composed.rows import elementwise_rows
from delegatekit_toolkit.constraints import no_nan
from delegatekit_toolkit.narrowing import narrowed, numbers_fit
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var
from .common import ANY, NUMBERS, clamp, composed, floating, tensor
from .program import Lower, ProgramBuilder


def _clamp(b: ProgramBuilder, call: Call) -> Var:
    return clamp(b, floating(b, call), *bounds_of(call))


def _to_type(b: ProgramBuilder, call: Call) -> Var:
    return b.cast(tensor(b, call), b.result_type(call))


def wide_result(call: Call) -> str:
    """Numbers for which a conversion is not PyTorch's."""
    return "numbers beyond 32 bits are not PyTorch's" if narrowed(call) else ""


ROWS: Final[tuple[Row[Lower], ...]] = (
    *elementwise_rows(composed, ANY, NUMBERS),
    row("clamp.default hardtanh.default", _clamp, NUMBERS, numbers_fit, no_nan()),
    row("_to_copy.default", _to_type, ANY, special_values=wide_result),
)
