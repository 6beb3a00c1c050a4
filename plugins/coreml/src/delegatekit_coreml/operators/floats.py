"""Elementwise operators about the parts of numbers: NaN and infinities, signs, angles, decimals, bits."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.constraints import types_of
from delegatekit_toolkit.narrowing import narrowed
from delegatekit_toolkit.support import Row, row

from ..ir.builder import Var, datatype_of
from ..ir.types import DataType
from .common import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    Term,
    binary,
    div,
    expanded,
    floating,
    mul,
    sub,
    tensor,
    unary,
    where,
)
from .program import Lower, ProgramBuilder

_FLOATING: Final = types_of("self", *FLOATS)
#: A shift by more places leaves no digit of 32 bits.
_MOST_PLACES: Final = 30

# -- NaN and infinities ------------------------------------------------------------------------------------------------


def is_nan(b: ProgramBuilder, x: Var) -> Var:
    """Where a number is none: it is not equal to itself."""
    return binary(b, "not_equal", x, x)


def _is_infinite(b: ProgramBuilder, call: Call) -> Var:
    return binary(b, "equal", unary(b, "abs", tensor(b, call)), math.inf)


def _ignoring_nan(kind: str) -> Lower:
    """The larger or lesser of two; of a number and NaN, the number."""

    def lower(b: ProgramBuilder, call: Call) -> Var:
        left, right = (expanded(b, tensor(b, call, name), call.result.shape) for name in ("self", "other"))
        found = binary(b, kind, left, right)
        if not datatype_of(left).is_float:
            return found
        return where(b, is_nan(b, left), right, where(b, is_nan(b, right), left, found))

    return lower


# -- signs and angles --------------------------------------------------------------------------------------------------


def _is_negative(b: ProgramBuilder, x: Var) -> Var:
    """Below zero, or the zero whose inverse is."""
    if datatype_of(x).is_float:
        x = where(b, binary(b, "equal", x, 0), div(b, 1, x), x)
    return binary(b, "less", x, 0)


def _with_sign(b: ProgramBuilder, call: Call) -> Var:
    size, other = unary(b, "abs", floating(b, call)), call["other"]
    if not isinstance(other, Operand):
        return mul(b, size, math.copysign(1, other))
    size, sign = (expanded(b, item, call.result.shape) for item in (size, tensor(b, call, "other")))
    return where(b, _is_negative(b, sign), mul(b, size, -1), size)


def _angle(b: ProgramBuilder, call: Call) -> Var:
    """The angle of a point: that of the lesser coordinate over the larger, turned to where the point lies."""
    y, x = (expanded(b, floating(b, call, name), call.result.shape) for name in ("self", "other"))
    above, beside = unary(b, "abs", y), unary(b, "abs", x)
    least, largest = binary(b, "minimum", above, beside), binary(b, "maximum", above, beside)
    ratio = div(b, least, where(b, binary(b, "equal", largest, 0), 1, largest))
    # Two infinities lie on the diagonal.
    angle = unary(b, "atan", where(b, binary(b, "equal", least, math.inf), 1, ratio))
    angle = where(b, binary(b, "greater", above, beside), sub(b, math.pi / 2, angle), angle)
    angle = where(b, _is_negative(b, x), sub(b, math.pi, angle), angle)
    return where(b, _is_negative(b, y), mul(b, angle, -1), angle)


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


def _scaled_by_power(b: ProgramBuilder, call: Call) -> Var:
    return mul(b, floating(b, call), unary(b, "exp2", floating(b, call, "other")))


# -- the rows ----------------------------------------------------------------------------------------------------------

_WHOLE: Final = types_of("self", *INTEGERS)

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("isnan.default", lambda b, call: is_nan(b, tensor(b, call)), _FLOATING),
    row("isinf.default", _is_infinite, _FLOATING),
    row("fmax.default", _ignoring_nan("maximum"), NUMBERS),
    row("fmin.default", _ignoring_nan("minimum"), NUMBERS),
    row("signbit.default", lambda b, call: _is_negative(b, tensor(b, call)), types_of("self", *FLOATS, *INTEGERS)),
    row("copysign.Tensor copysign.Scalar", _with_sign, REAL),
    row("atan2.default", _angle, REAL),
    row("round.decimals", _rounded_to_decimals, NUMBERS, few_decimals),
    row("ldexp.Tensor", _scaled_by_power, REAL),
    row(
        "bitwise_left_shift.Tensor",
        _shifted("mul"),
        _WHOLE,
        known_places,
        special_values=narrowed,
    ),
    row("bitwise_right_shift.Tensor", _shifted("floor_div"), _WHOLE, known_places),
)
