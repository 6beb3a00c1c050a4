"""Elementwise operators: arithmetic, XNNPACK's functions, powers, clamps, masks and activations."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_api import Call, Operand
from delegatekit_toolkit.arguments import bounds_of
from delegatekit_toolkit.constraints import finite
from delegatekit_toolkit.sizes import Dynamic
from delegatekit_toolkit.support import Row, row
from delegatekit_toolkit.symbols import shape_of

from ..ir import operators as ops
from ..ir.layout import Tensor
from ..ir.operators import BinaryKind, UnaryKind
from .common import (
    EXPONENTIAL_NAN,
    LARGEST,
    LOGARITHM_ENDS,
    MAXIMUM_NAN,
    MINIMUM_NAN,
    ROOT_OF_INFINITY,
    SMALLEST,
    arithmetic,
    expand,
    normal_number,
    number_operand,
    unless_float16,
)
from .precision import always, normal_float16, plain_operands
from .program import Lower, ProgramBuilder

# -- arithmetic --------------------------------------------------------------------------------------------------------


def _binary(kind: BinaryKind) -> Lower:
    """Two operands, each a tensor or a number."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return b.binary(kind, b.operand(call["self"]), b.operand(call["other"]))

    return lower


def _with_alpha(kind: BinaryKind, *, reverse: bool = False) -> Lower:
    """`self` and `alpha * other`; or, reversed, `other` and `alpha * self`."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        first, second = call["self"], call["other"]
        if reverse:
            first, second = second, first
        return b.binary(kind, b.operand(first), _scaled_operand(b, second, call["alpha"]))

    return lower


def _scaled_operand(b: ProgramBuilder, item: Operand | float, factor: float) -> Tensor:
    if isinstance(item, int | float):
        return b.scalar(item * factor)
    return b.tensor(item) if factor == 1 else b.binary(BinaryKind.MULTIPLY, b.tensor(item), b.scalar(factor))


def _lerp(b: ProgramBuilder, call: Call) -> Tensor:
    start, end, weight = b.tensor(call["self"]), b.tensor(call["end"]), call["weight"]
    way = b.binary(BinaryKind.SUBTRACT, end, start)
    if abs(weight) < 0.5:
        return b.binary(BinaryKind.ADD, start, arithmetic(b, BinaryKind.MULTIPLY, way, weight))
    return b.binary(BinaryKind.SUBTRACT, end, arithmetic(b, BinaryKind.MULTIPLY, way, 1.0 - weight))


# -- functions ---------------------------------------------------------------------------------------------------------


def _unary(kind: UnaryKind) -> Lower:
    """A function that XNNPACK has."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return b.unary(kind, b.tensor(call["self"]))

    return lower


def _scaled(kind: UnaryKind, factor: float) -> Lower:
    """A function times a number."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return b.binary(BinaryKind.MULTIPLY, b.unary(kind, b.tensor(call["self"])), b.scalar(factor))

    return lower


def reciprocal(b: ProgramBuilder, x: Tensor) -> Tensor:
    """1 / x."""
    return b.binary(BinaryKind.DIVIDE, b.scalar(1.0), x)


def _reciprocal(b: ProgramBuilder, call: Call) -> Tensor:
    return reciprocal(b, b.tensor(call["self"]))


def _reciprocal_square_root(b: ProgramBuilder, call: Call) -> Tensor:
    # XNNPACK's own ReciprocalSquareRoot returns NaN for 0 where PyTorch returns inf.
    return reciprocal(b, b.unary(UnaryKind.SQUARE_ROOT, b.tensor(call["self"])))


def exact_power(call: Call) -> str | None:
    """The exponent, or its negative, is a whole number to 8 or a multiple of 1/4 to 4, but not 0."""
    exponent = call["exponent"]
    if isinstance(exponent, int | float) and _is_exact_exponent(exponent):
        return None
    return f"exponent {exponent}: XNNPACK has no power function, only 1 to 8 and quarters to 4 can be composed"


def _is_exact_exponent(exponent: float) -> bool:
    """True if squares, square roots and products compute the power: whole numbers to 8, and quarters to 4."""
    return exponent != 0 and float(4 * exponent).is_integer() and abs(exponent) <= (8 if exponent % 1 == 0 else 4)


def _power(b: ProgramBuilder, call: Call) -> Tensor:
    exponent, x = float(call["exponent"]), b.tensor(call["self"])
    whole, part = divmod(abs(exponent), 1.0)
    factors = []
    root = b.unary(UnaryKind.SQUARE_ROOT, x) if part else x
    if part in (0.5, 0.75):
        factors.append(root)
    if part in (0.25, 0.75):
        factors.append(b.unary(UnaryKind.SQUARE_ROOT, root))
    square = x
    for bit in range(int(whole).bit_length()):
        square = b.unary(UnaryKind.SQUARE, square) if bit else x
        if int(whole) >> bit & 1:
            factors.append(square)
    result = factors.pop()
    while factors:
        result = b.binary(BinaryKind.MULTIPLY, result, factors.pop())
    return result if exponent > 0 else reciprocal(b, result)


def _roots_of_infinity(call: Call) -> str:
    return ROOT_OF_INFINITY if call["exponent"] % 1 else ""


def _first_or_second(call: Call) -> bool:
    """True if the power is one node, or none."""
    return call["exponent"] in (1, 2)


# -- clamps and masks --------------------------------------------------------------------------------------------------


def ordered_bounds(call: Call) -> str | None:
    """The lower bound is not above the upper, and neither is NaN."""
    low, high = clamp_bounds(call)
    return None if low <= high else f"bounds {low} and {high} are not an interval"


def clamp_bounds(call: Call) -> tuple[float, float]:
    """The interval of relu, hardtanh or clamp; infinite if there is no bound."""
    low, high = bounds_of(call)
    return _as_bound(low, -math.inf), _as_bound(high, math.inf)


def _as_bound(number: float | None, absent: float) -> float:
    """A bound in float32: numbers beyond its range become infinite."""
    if number is None:
        return absent
    return math.copysign(math.inf, number) if abs(number) > LARGEST else float(number)


def _clamp(b: ProgramBuilder, call: Call) -> Tensor:
    return b.clamp(b.tensor(call["self"]), *clamp_bounds(call))


def _clamp_between(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    for kind, name in ((BinaryKind.MAXIMUM, "min"), (BinaryKind.MINIMUM, "max")):
        bound = call[name]
        if bound is not None:
            x = b.binary(kind, x, b.tensor(bound))
    return x


def masked_constant(call: Call) -> str | None:
    """The condition is a constant, and so is one of the sides, without NaN."""
    found = filled_by_mask(call)
    if found is None:
        return "the condition, or both sides, are computed: XNNPACK has no comparison"
    return "the constant side has a NaN" if bool(found[1].isnan().any()) else None


def filled_by_mask(call: Call) -> tuple[torch.Tensor, torch.Tensor, Operand] | None:
    """The mask of a `where` that selects its constant side, that constant, and the operand that is kept elsewhere.

    The constant broadcasts to the mask's shape or further. None if the mask is computed, or both sides are.
    """
    mask = call["condition"].constant
    sides: list[Operand] = [call["self"], call["other"]]
    known = [side.constant for side in sides]
    if mask is None or (known[0] is None) == (known[1] is None):
        return None
    taken = 0 if known[0] is not None else 1
    fill = known[taken]
    assert fill is not None
    return mask if taken == 0 else ~mask, fill.to(torch.float32), sides[1 - taken]


def _where(b: ProgramBuilder, call: Call) -> Tensor:
    # Bounds with one number where the mask is set, and infinite elsewhere.
    found = filled_by_mask(call)
    assert found is not None
    mask, fill, kept = found
    x = b.tensor(kept)
    for kind, absent in ((BinaryKind.MAXIMUM, -math.inf), (BinaryKind.MINIMUM, math.inf)):
        bound = torch.where(mask, fill, absent)
        if not bool((bound == absent).all()):
            x = b.binary(kind, x, Tensor.dense(b.constant(bound)))
    shape = shape_of(call.result)
    return x if x.shape == shape else expand(b, x, shape)


# -- activations -------------------------------------------------------------------------------------------------------


def _hardsigmoid(b: ProgramBuilder, call: Call) -> Tensor:
    shifted = b.binary(BinaryKind.ADD, b.tensor(call["self"]), b.scalar(3.0))
    return b.binary(BinaryKind.DIVIDE, b.clamp(shifted, 0.0, 6.0), b.scalar(6.0))


def _leaky_relu(b: ProgramBuilder, call: Call) -> Tensor:
    return b.map(ops.LeakyRelu(float(call["negative_slope"])), b.tensor(call["self"]))


def plain_elu(call: Call) -> str | None:
    """input_scale is 1, and alpha is positive."""
    if call["input_scale"] != 1:
        return f"input_scale = {call['input_scale']}: XNNPACK's ELU has none"
    alpha = call["alpha"]
    return None if SMALLEST <= alpha <= LARGEST else f"alpha = {alpha}: XNNPACK's ELU needs a positive number"


def _elu(b: ProgramBuilder, call: Call) -> Tensor:
    result = b.map(ops.Elu(float(call["alpha"])), b.tensor(call["self"]))
    scale = call["scale"]
    return result if scale == 1 else b.binary(BinaryKind.MULTIPLY, result, b.scalar(scale))


def _unscaled_elu(call: Call) -> bool:
    return call["scale"] == 1 and normal_float16("alpha")(call)


def _prelu(b: ProgramBuilder, call: Call) -> Tensor:
    x, slope = b.tensor(call["self"]), b.tensor(call["weight"])
    if not x.shape:
        slope = b.reshape(slope, ())
    elif len(x.shape) > 1 and slope.value.size != 1:
        slope = b.reshape(slope, (slope.value.size, *[1] * (len(x.shape) - 2)))
    return b.binary(BinaryKind.PRELU, x, slope)


def sigmoid_weighted(b: ProgramBuilder, x: Tensor, gate: Tensor) -> Tensor:
    """x * sigmoid(gate)."""
    return b.binary(BinaryKind.MULTIPLY, x, b.unary(UnaryKind.SIGMOID, gate))


def _silu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    return sigmoid_weighted(b, x, x)


def _gelu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    if call["approximate"] == "none":
        return b.unary(UnaryKind.GELU, x)
    # x (1 + tanh u) / 2 = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Beyond +-100 the sigmoid is 0 or 1, and
    # XNNPACK's overflows for arguments that a cube reaches.
    twice = 2.0 * math.sqrt(2.0 / math.pi)
    cubic = b.binary(BinaryKind.MULTIPLY, b.unary(UnaryKind.SQUARE, x), b.scalar(twice * 0.044715))
    factor = b.binary(BinaryKind.ADD, cubic, b.scalar(twice))
    return sigmoid_weighted(b, x, b.clamp(b.binary(BinaryKind.MULTIPLY, factor, x), -100.0, 100.0))


def halves_known(call: Call) -> str | None:
    """The axis that is halved does not change."""
    shape = shape_of(call["self"])
    size = shape[call["dim"] % len(shape)]
    return f"half of {size} elements is not at a known place" if isinstance(size, Dynamic) else None


def _glu(b: ProgramBuilder, call: Call) -> Tensor:
    x = b.tensor(call["self"])
    axis = call["dim"] % len(x.shape)
    half = shape_of(call.result)[axis]
    return sigmoid_weighted(b, b.slice(x, axis, 0, half), b.slice(x, axis, half, half))


# -- the rows ----------------------------------------------------------------------------------------------------------

_SIGMOID: Final = unless_float16("sigmoid of numbers beyond 7e26 is NaN")
_WAVES: Final = unless_float16("sin and cos lose accuracy beyond 1e6")

ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _with_alpha(BinaryKind.ADD), number_operand, float16=plain_operands),
    row("sub.Tensor sub.Scalar", _with_alpha(BinaryKind.SUBTRACT), number_operand, float16=plain_operands),
    row(
        "rsub.Scalar",
        _with_alpha(BinaryKind.SUBTRACT, reverse=True),
        number_operand,
        float16=plain_operands,
    ),
    row("mul.Tensor mul.Scalar", _binary(BinaryKind.MULTIPLY), number_operand, float16=plain_operands),
    row("div.Tensor div.Scalar", _binary(BinaryKind.DIVIDE), number_operand, float16=plain_operands),
    row(
        "maximum.default",
        _binary(BinaryKind.MAXIMUM),
        special_values=MAXIMUM_NAN,
        float16=plain_operands,
    ),
    row(
        "minimum.default",
        _binary(BinaryKind.MINIMUM),
        special_values=MINIMUM_NAN,
        float16=plain_operands,
    ),
    row("lerp.Scalar", _lerp, finite("weight"), keep=True),
    row("abs.default", _unary(UnaryKind.ABS), float16=always),
    row("ceil.default", _unary(UnaryKind.CEILING), float16=always),
    row("cos.default", _unary(UnaryKind.COS), special_values=_WAVES),
    row("exp.default", _unary(UnaryKind.EXP), special_values=f"{EXPONENTIAL_NAN}, and exp(x) infinite from 88.38 on"),
    row("floor.default", _unary(UnaryKind.FLOOR), float16=always),
    row("log.default", _unary(UnaryKind.LOG), special_values=LOGARITHM_ENDS),
    row("log2.default", _scaled(UnaryKind.LOG, 1.0 / math.log(2.0)), special_values=LOGARITHM_ENDS),
    row("log10.default", _scaled(UnaryKind.LOG, 1.0 / math.log(10.0)), special_values=LOGARITHM_ENDS),
    row("neg.default", _unary(UnaryKind.NEGATE), float16=always),
    row("reciprocal.default", _reciprocal, float16=always),
    row("rsqrt.default", _reciprocal_square_root, special_values=ROOT_OF_INFINITY),
    row("sigmoid.default", _unary(UnaryKind.SIGMOID), special_values=_SIGMOID),
    row("sin.default", _unary(UnaryKind.SIN), special_values=_WAVES),
    row("sqrt.default", _unary(UnaryKind.SQUARE_ROOT), special_values=ROOT_OF_INFINITY),
    row("square.default", _unary(UnaryKind.SQUARE), keep=True, float16=always),
    row("tanh.default", _unary(UnaryKind.TANH)),
    row(
        "pow.Tensor_Scalar",
        _power,
        exact_power,
        special_values=_roots_of_infinity,
        float16=_first_or_second,
    ),
    row("relu.default", _clamp),
    row("hardtanh.default clamp.default", _clamp, ordered_bounds, keep=True),
    row("clamp.Tensor", _clamp_between, special_values=MAXIMUM_NAN),
    row("where.self", _where, masked_constant, special_values=MAXIMUM_NAN, constants_of_any_type="condition"),
    row("hardswish.default", _unary(UnaryKind.HARDSWISH), keep=True, float16=always),
    row("hardsigmoid.default", _hardsigmoid, keep=True),
    row(
        "leaky_relu.default",
        _leaky_relu,
        normal_number("negative_slope"),
        keep=True,
        float16=normal_float16("negative_slope"),
    ),
    row(
        "elu.default",
        _elu,
        plain_elu,
        normal_number("scale"),
        keep=True,
        float16=_unscaled_elu,
    ),
    row("prelu.default", _prelu, keep=True, float16=always),
    row("silu.default", _silu, keep=True, special_values=_SIGMOID),
    row("gelu.default", _gelu, keep=True, special_values="gelu(inf) is inf, PyTorch says NaN"),
    row("glu.default", _glu, halves_known, keep=True, special_values=_SIGMOID),
)
