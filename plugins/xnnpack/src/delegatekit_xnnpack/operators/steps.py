"""Functions with steps: rounding, signs, thresholds, integer quotients, remainders."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call
from delegatekit_toolkit.constraints import finite
from delegatekit_toolkit.support import Row, row

from ..ir.layout import Tensor
from ..ir.operators import UnaryKind
from .common import ADD, DIVIDE, MULTIPLY, SUBTRACT, arithmetic, is_positive, number_operand, positive_number, sign
from .program import Lower, ProgramBuilder

#: From here on, float32 represents integers only.
_INTEGERS = 2.0**23


def truncated(b: ProgramBuilder, x: Tensor) -> Tensor:
    """x without its fractional part."""
    floor = b.unary(UnaryKind.FLOOR, b.clamp(x, 0.0, math.inf))
    return arithmetic(b, ADD, floor, b.unary(UnaryKind.CEILING, b.clamp(x, -math.inf, 0.0)))


def _trunc(b: ProgramBuilder, call: Call) -> Tensor:
    return truncated(b, b.tensor(call["self"]))


def _round(b: ProgramBuilder, call: Call) -> Tensor:
    # A sum with 2^23 has no bits for a fraction: the processor rounds it, ties to even. Numbers of either sign need a
    # sum of their own; larger numbers are integers, and are added unchanged.
    x = b.tensor(call["self"])
    above, below = b.clamp(x, 0.0, _INTEGERS), b.clamp(x, -_INTEGERS, 0.0)
    above = arithmetic(b, SUBTRACT, arithmetic(b, ADD, above, _INTEGERS), _INTEGERS)
    below = arithmetic(b, ADD, arithmetic(b, SUBTRACT, below, _INTEGERS), _INTEGERS)
    beyond = arithmetic(b, SUBTRACT, x, b.clamp(x, -_INTEGERS, _INTEGERS))
    return arithmetic(b, ADD, arithmetic(b, ADD, above, below), beyond)


def _sign(b: ProgramBuilder, call: Call) -> Tensor:
    return sign(b, b.tensor(call["self"]))


def _threshold(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    threshold, value = float(call["threshold"]), float(call["value"])
    kept = b.clamp(x, threshold, math.inf)
    if threshold == value:
        return kept
    above = is_positive(b, arithmetic(b, SUBTRACT, x, threshold))
    result = arithmetic(b, MULTIPLY, kept, above)
    if value == 0:
        return result
    return arithmetic(b, ADD, result, arithmetic(b, MULTIPLY, arithmetic(b, SUBTRACT, 1.0, above), value))


def _hardshrink(b: ProgramBuilder, call: Call) -> Tensor:
    x, width = b.tensor(call["self"]), call["lambd"]
    return arithmetic(b, MULTIPLY, x, is_positive(b, arithmetic(b, SUBTRACT, b.unary(UnaryKind.ABS, x), float(width))))


def _softshrink(b: ProgramBuilder, call: Call) -> Tensor:
    x, width = b.tensor(call["self"]), float(call["lambd"])
    return arithmetic(b, SUBTRACT, x, b.clamp(x, -width, width))


# -- division --------------------------------------------------------------------------------------------------------


def short_divisors(call: Call) -> str | None:
    """Rounded down, the divisors are constants of few binary digits: then quotients are never rounded up to a whole."""
    if call["rounding_mode"] != "floor":
        return None
    known = divisors(call)
    if known is None:
        return "other is computed: its quotients may be rounded up to the next whole number"
    bits = significant_bits(known)
    return None if bits <= _SHORT else f"other has {bits} binary digits: quotients may be rounded up to a whole number"


#: With this many bits, products with whole numbers to 2^21 are exact; beyond, one more or less is within rounding.
_SHORT: Final = 3


def powers_of_two(call: Call) -> str | None:
    """The divisors are constants, powers of two from 1 on: no step rounds."""
    known = divisors(call)
    if known is None:
        return "other is computed: products of rounded quotients are not exact"
    if not isinstance(call["self"], int | float) and significant_bits(known) == 1:
        return None if bool((known.abs() >= 1).all()) else "other is less than 1: quotients may overflow"
    return "other is not a power of two: products of rounded quotients are not exact"


def divisors(call: Call) -> torch.Tensor | None:
    """The numbers that a call divides by, as float32; None if they are computed."""
    other = call["other"]
    if isinstance(other, int | float):
        return torch.tensor(float(other), dtype=torch.float32)
    data = other.constant
    return None if data is None else data.to(torch.float32)


def significant_bits(numbers: torch.Tensor) -> int:
    """The binary digits of the longest mantissa; 24, float32's, if a number is 0 or not finite."""
    if not bool((numbers.isfinite() & (numbers != 0)).all()):
        return 24
    mantissas = (numbers.double().frexp().mantissa * 2.0**24).to(torch.int64)
    lowest = int((mantissas & -mantissas).min())
    return 25 - lowest.bit_length()


def _quotient(b: ProgramBuilder, call: Call) -> Tensor:
    return b.binary(DIVIDE, b.operand(call["self"]), b.operand(call["other"]))


def _rounded_quotient(b: ProgramBuilder, call: Call) -> Tensor:
    quotient, mode = _quotient(b, call), call["rounding_mode"]
    if mode is None:
        return quotient
    return b.unary(UnaryKind.FLOOR, quotient) if mode == "floor" else truncated(b, quotient)


def _rest(*, floor: bool) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        quotient = _quotient(b, call)
        whole = b.unary(UnaryKind.FLOOR, quotient) if floor else truncated(b, quotient)
        return b.binary(SUBTRACT, b.operand(call["self"]), b.binary(MULTIPLY, whole, b.operand(call["other"])))

    return lower


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("trunc.default", _trunc),
    row("round.default", _round),
    row("sign.default", _sign, special_values="sign(NaN) is NaN, PyTorch says 0"),
    row("threshold.default", _threshold, finite("threshold", "value"), keep=True),
    row("hardshrink.default", _hardshrink, positive_number("lambd"), keep=True),
    row("softshrink.default", _softshrink, positive_number("lambd"), keep=True),
    row("div.Tensor_mode div.Scalar_mode", _rounded_quotient, number_operand, short_divisors),
    row("fmod.Tensor fmod.Scalar", _rest(floor=False), powers_of_two),
    row("remainder.Tensor remainder.Scalar", _rest(floor=True), powers_of_two),
)
