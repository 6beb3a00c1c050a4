"""Elementwise operators about the parts of numbers: NaN and infinities, signs, angles, decimals, bits."""

from __future__ import annotations

from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.composed import angles, arithmetic, functions, number
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.narrowing import narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.types import DataType
from .common import FLOATS, INTEGERS, NUMBERS, REAL, Term, binary, composed, div, mul, tensor, unary
from .program import Lower, ProgramBuilder

_FLOATING: Final = types_of("self", *FLOATS)
#: A shift by more places leaves no digit of 32 bits.
_MOST_PLACES: Final = 30

# -- decimals and bits -------------------------------------------------------------------------------------------------


def _rounded_to_decimals(b: ProgramBuilder, call: Call) -> Var:
    """In float32 whatever the precision: in float16 few numbers have the decimals."""
    x, decimals = tensor(b, call), call["decimals"]
    if not datatype_of(x).is_float or not decimals:
        return unary(b, "round", x) if datatype_of(x).is_float else b.call("identity", x=x)
    factor = 10.0 ** abs(decimals)
    there, back = (mul, div) if decimals > 0 else (div, mul)
    wide = unary(b, "round", there(b, b.cast(x, DataType.FLOAT32), factor))
    return b.cast(back(b, wide, factor), b.result_type(call))


def few_decimals(call: Call) -> str | None:
    """Between -6 and 6 decimals."""
    decimals = call["decimals"]
    return None if abs(decimals) <= 6 else f"decimals = {decimals}: float32 has 7"


def known_places(call: Call) -> str | None:
    """By a known number of places from 0 to 30."""
    other = call["other"]
    known = other.constant if isinstance(other, Operand) else torch.tensor(other)
    if known is None:
        return "other is computed: a number or a constant is taken"
    low, high = (int(item) for item in known.aminmax())
    return None if low >= 0 and high <= _MOST_PLACES else f"by {low} to {high} places: 0 to {_MOST_PLACES} are taken"


def _shifted(kind: str) -> Lower:
    """By n places: times 2^n, or divided by it and rounded down, as the bits of negative numbers are."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        other = call["other"]
        factor: Term = 2**other if not isinstance(other, Operand) else b.constant(_powers(other))
        return binary(b, kind, tensor(b, call), factor)

    return lower


def _powers(places: Operand) -> torch.Tensor:
    known = places.constant
    assert known is not None
    return torch.ones_like(known) << known


# -- the rows ----------------------------------------------------------------------------------------------------------

_TWO: Final = "self other"
_WHOLE: Final = types_of("self", *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("isnan.default", composed(number.isnan), _FLOATING),
    row("isinf.default", composed(number.isinf), _FLOATING),
    row("fmax.default", composed(arithmetic.fmax, _TWO), NUMBERS),
    row("fmin.default", composed(arithmetic.fmin, _TWO), NUMBERS),
    row("signbit.default", composed(number.signbit), types_of("self", *FLOATS, *INTEGERS)),
    row("copysign.Tensor copysign.Scalar", composed(arithmetic.copysign, _TWO), REAL),
    row("atan2.default", composed(angles.atan2, _TWO), REAL),
    row("round.decimals", _rounded_to_decimals, NUMBERS, few_decimals),
    row("ldexp.Tensor", composed(functions.ldexp, _TWO), REAL),
    row(
        "bitwise_left_shift.Tensor",
        _shifted("mul"),
        _WHOLE,
        known_places,
        special_values=narrowed,
    ),
    row("bitwise_right_shift.Tensor", _shifted("floor_div"), _WHOLE, known_places),
)
