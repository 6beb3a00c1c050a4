"""Functions with steps: rounding, signs, thresholds, quotients without their fraction, remainders."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from delegatekit_api import ProgramView

from ..arguments import argument
from ..layout import Tensor
from ..operators import UnaryKind
from .context import Lowering, ProgramBuilder
from .elementwise import arithmetic
from .functions import ADD, DIVIDE, MULTIPLY, SUBTRACT, is_positive, sign

if TYPE_CHECKING:
    from torch.fx import Node

#: From here on, float32 has integers only.
_INTEGERS = 2.0**23


def truncated(b: ProgramBuilder, x: Tensor) -> Tensor:
    """x without its fraction."""
    floor = b.unary(UnaryKind.FLOOR, b.clamp(x, 0.0, math.inf))
    return arithmetic(b, ADD, floor, b.unary(UnaryKind.CEILING, b.clamp(x, -math.inf, 0.0)))


def _trunc(b: ProgramBuilder, node: Node) -> Tensor:
    return truncated(b, b.tensor(argument(node, "self")))


def _round(b: ProgramBuilder, node: Node) -> Tensor:
    # A sum with 2^23 has no place for a fraction: the processor rounds it, ties to even. Numbers of either sign need a
    # sum of their own; what lies beyond is an integer, and is added as it is.
    x = b.tensor(argument(node, "self"))
    above, below = b.clamp(x, 0.0, _INTEGERS), b.clamp(x, -_INTEGERS, 0.0)
    above = arithmetic(b, SUBTRACT, arithmetic(b, ADD, above, _INTEGERS), _INTEGERS)
    below = arithmetic(b, ADD, arithmetic(b, SUBTRACT, below, _INTEGERS), _INTEGERS)
    beyond = arithmetic(b, SUBTRACT, x, b.clamp(x, -_INTEGERS, _INTEGERS))
    return arithmetic(b, ADD, arithmetic(b, ADD, above, below), beyond)


def _sign(b: ProgramBuilder, node: Node) -> Tensor:
    return sign(b, b.tensor(argument(node, "self")))


def _threshold(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    threshold, value = float(argument(node, "threshold")), float(argument(node, "value"))
    kept = b.clamp(x, threshold, math.inf)
    if threshold == value:
        return kept
    above = is_positive(b, arithmetic(b, SUBTRACT, x, threshold))
    result = arithmetic(b, MULTIPLY, kept, above)
    if value == 0:
        return result
    return arithmetic(b, ADD, result, arithmetic(b, MULTIPLY, arithmetic(b, SUBTRACT, 1.0, above), value))


def _hardshrink(b: ProgramBuilder, node: Node) -> Tensor:
    x, width = b.tensor(argument(node, "self")), argument(node, "lambd")
    return arithmetic(b, MULTIPLY, x, is_positive(b, arithmetic(b, SUBTRACT, b.unary(UnaryKind.ABS, x), float(width))))


def _softshrink(b: ProgramBuilder, node: Node) -> Tensor:
    x, width = b.tensor(argument(node, "self")), float(argument(node, "lambd"))
    return arithmetic(b, SUBTRACT, x, b.clamp(x, -width, width))


# -- division --------------------------------------------------------------------------------------------------------


def divisors(node: Node, program: ProgramView) -> torch.Tensor | None:
    """The numbers that a call divides by, as float32; None if they are computed."""
    other = argument(node, "other")
    if isinstance(other, int | float):
        return torch.tensor(float(other), dtype=torch.float32)
    data = program.constant(other)
    return None if data is None else data.detach().to(torch.float32)


def significant_bits(numbers: torch.Tensor) -> int:
    """The binary digits of the longest mantissa; 24, float32's, if a number is 0 or not finite."""
    if not bool((numbers.isfinite() & (numbers != 0)).all()):
        return 24
    mantissas = (numbers.double().frexp().mantissa * 2.0**24).to(torch.int64)
    lowest = int((mantissas & -mantissas).min())
    return 25 - lowest.bit_length()


def _quotient(b: ProgramBuilder, node: Node) -> Tensor:
    return b.binary(DIVIDE, b.operand(argument(node, "self")), b.operand(argument(node, "other")))


def _rounded_quotient(b: ProgramBuilder, node: Node) -> Tensor:
    quotient, mode = _quotient(b, node), argument(node, "rounding_mode")
    if mode is None:
        return quotient
    return b.unary(UnaryKind.FLOOR, quotient) if mode == "floor" else truncated(b, quotient)


def _rest(*, floor: bool) -> Lowering:
    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        quotient = _quotient(b, node)
        whole = b.unary(UnaryKind.FLOOR, quotient) if floor else truncated(b, quotient)
        return b.binary(
            SUBTRACT, b.operand(argument(node, "self")), b.binary(MULTIPLY, whole, b.operand(argument(node, "other")))
        )

    return lower


LOWERINGS: dict[str, Lowering] = {
    "aten.trunc.default": _trunc,
    "aten.round.default": _round,
    "aten.sign.default": _sign,
    "aten.threshold.default": _threshold,
    "aten.hardshrink.default": _hardshrink,
    "aten.softshrink.default": _softshrink,
    "aten.div.Tensor_mode": _rounded_quotient,
    "aten.div.Scalar_mode": _rounded_quotient,
    "aten.fmod.Tensor": _rest(floor=False),
    "aten.fmod.Scalar": _rest(floor=False),
    "aten.remainder.Tensor": _rest(floor=True),
    "aten.remainder.Scalar": _rest(floor=True),
}
