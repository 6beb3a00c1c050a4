"""Functions that XNNPACK lacks, composed of those that it has, as precise as PyTorch's.

XNNPACK's logarithm has an absolute error of a rounding of 1: it is imprecise for arguments near 1. Its ELU is exp(x) -
1 for negative x, precise everywhere; one step of Newton's method with it yields a precise log(1 + x).
"""

from __future__ import annotations

import math
from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir import operators as ops
from ..ir.layout import Tensor
from ..ir.operators import BinaryKind, UnaryKind
from .common import ADD, DIVIDE, EXPONENTIAL_NAN, LOGARITHM_ENDS, MULTIPLY, SUBTRACT, arithmetic, positive_number, sign
from .program import Lower, ProgramBuilder


def _negative(b: ProgramBuilder, x: Tensor) -> Tensor:
    return b.unary(UnaryKind.NEGATE, x)


def _less_one(b: ProgramBuilder, x: Tensor) -> Tensor:
    """exp(x) - 1 for x <= 0."""
    return b.map(ops.Elu(1.0), x)


def _both_sides(b: ProgramBuilder, x: Tensor) -> tuple[Tensor, Tensor]:
    """min(x, 0) and max(x, 0)."""
    return b.clamp(x, -math.inf, 0.0), b.clamp(x, 0.0, math.inf)


def _expm1(b: ProgramBuilder, call: Call) -> Tensor:
    # exp(x) - 1 = (1 - exp(-x)) exp(x / 2)^2 for positive x overflows no earlier; each side leaves 0 on the other.
    below, above = _both_sides(b, b.tensor(call["self"]))
    root = b.unary(UnaryKind.EXP, arithmetic(b, MULTIPLY, above, 0.5))
    upper = arithmetic(b, MULTIPLY, arithmetic(b, MULTIPLY, _less_one(b, _negative(b, above)), root), root)
    return arithmetic(b, SUBTRACT, _less_one(b, below), upper)


def _log1p(b: ProgramBuilder, call: Call) -> Tensor:
    """log(1 + x) with a correction from log(1 + s), where s, x within -0.5 to 1, is small enough to need one."""
    x = b.tensor(call["self"])
    near = b.clamp(x, -0.5, 1.0)
    shifted = arithmetic(b, ADD, near, 1.0)
    # y = log(1 + s) solves exp(-|y|) - 1 = t, where t is -s / (1 + s) for positive s, and s for negative.
    target = b.binary(BinaryKind.MINIMUM, near, _negative(b, arithmetic(b, DIVIDE, near, shifted)))
    size = b.unary(UnaryKind.ABS, b.unary(UnaryKind.LOG, shifted))
    lacks = arithmetic(b, SUBTRACT, _less_one(b, _negative(b, size)), target)
    rough = b.unary(UnaryKind.LOG, arithmetic(b, ADD, x, 1.0))
    return arithmetic(b, ADD, rough, arithmetic(b, MULTIPLY, lacks, sign(b, near)))


def _softened(b: ProgramBuilder, x: Tensor) -> Tensor:
    """log(1 + exp(-|x|))."""
    z = b.unary(UnaryKind.EXP, _negative(b, b.unary(UnaryKind.ABS, x)))
    shifted = arithmetic(b, ADD, z, 1.0)
    rough = b.unary(UnaryKind.LOG, shifted)
    # y = log(1 + z) solves exp(-y) - 1 = -z / (1 + z).
    lacks = arithmetic(b, ADD, _less_one(b, _negative(b, rough)), arithmetic(b, DIVIDE, z, shifted))
    return arithmetic(b, ADD, rough, lacks)


def late_threshold(call: Call) -> str | None:
    """The threshold is 17 or more: from there on, float32 has no difference between x and softplus(x)."""
    threshold = call["threshold"]
    return None if threshold >= 17 else f"threshold = {threshold}: XNNPACK's nodes compute no threshold below 17"


def _softplus(b: ProgramBuilder, call: Call) -> Tensor:
    x, beta = b.tensor(call["self"]), call["beta"]
    scaled = x if beta == 1 else arithmetic(b, MULTIPLY, x, beta)
    result = arithmetic(b, ADD, b.clamp(scaled, 0.0, math.inf), _softened(b, scaled))
    return result if beta == 1 else arithmetic(b, DIVIDE, result, beta)


def _log_sigmoid(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return arithmetic(b, SUBTRACT, b.clamp(x, -math.inf, 0.0), _softened(b, x))


def _mish(b: ProgramBuilder, call: Call) -> Tensor:
    # x tanh(log(1 + e)) with e = exp(x) is x n / (n + 2) with n = e (e + 2). Beyond 20 the quotient is 1.
    x = b.tensor(call["self"])
    power = b.unary(UnaryKind.EXP, b.clamp(x, -math.inf, 20.0))
    part = arithmetic(b, MULTIPLY, power, arithmetic(b, ADD, power, 2.0))
    return arithmetic(b, MULTIPLY, x, arithmetic(b, DIVIDE, part, arithmetic(b, ADD, part, 2.0)))


def _half_power(b: ProgramBuilder, x: Tensor) -> Tensor:
    """exp(|x|) / 2, which overflows no earlier than sinh and cosh."""
    root = b.unary(UnaryKind.EXP, arithmetic(b, MULTIPLY, b.unary(UnaryKind.ABS, x), 0.5))
    return arithmetic(b, MULTIPLY, arithmetic(b, MULTIPLY, root, 0.5), root)


def _cosh(b: ProgramBuilder, call: Call) -> Tensor:
    half = _half_power(b, b.tensor(call["self"]))
    return arithmetic(b, ADD, half, arithmetic(b, DIVIDE, 0.25, half))


def _sinh(b: ProgramBuilder, call: Call) -> Tensor:
    # (1 - exp(-|x|)) (exp(|x|) + 1) / 2, with the sign of x.
    x = b.tensor(call["self"])
    below, above = _both_sides(b, x)
    odd = arithmetic(b, SUBTRACT, _less_one(b, below), _less_one(b, _negative(b, above)))
    return arithmetic(b, MULTIPLY, odd, arithmetic(b, ADD, _half_power(b, x), 0.5))


def _celu(b: ProgramBuilder, call: Call) -> Tensor:
    x, alpha = b.tensor(call["self"]), call["alpha"]
    if alpha == 1:
        return _less_one(b, x)
    below, above = _both_sides(b, x)
    lower = arithmetic(b, MULTIPLY, _less_one(b, arithmetic(b, DIVIDE, below, alpha)), alpha)
    return arithmetic(b, ADD, above, lower)


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("log1p.default", _log1p, special_values=LOGARITHM_ENDS),
    row("expm1.default", _expm1),
    row("sinh.default", _sinh),
    row("cosh.default", _cosh, special_values=EXPONENTIAL_NAN),
    row("mish.default", _mish, keep=True),
    row("log_sigmoid.default", _log_sigmoid, keep=True),
    row("softplus.default", _softplus, positive_number("beta"), late_threshold, keep=True),
    row("celu.default", _celu, positive_number("alpha"), keep=True),
)
