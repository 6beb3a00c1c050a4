"""Elementwise operators: arithmetic, functions, activations."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from delegatekit_api import ProgramView
from delegatekit_toolkit.sizes import Size, dynamic_count

from .. import operators as ops
from ..arguments import argument, shape_of
from ..graph import Shape
from ..layout import Tensor
from ..operators import BinaryKind, UnaryKind
from .context import Lowering, ProgramBuilder

if TYPE_CHECKING:
    from torch.fx import Node


def _unary(*kinds: UnaryKind) -> Lowering:
    """Functions applied one after another."""

    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        x = b.tensor(node.args[0])  # type: ignore[arg-type]
        for kind in kinds:
            x = b.unary(kind, x)
        return x

    return lower


def _binary(kind: BinaryKind) -> Lowering:
    """Two operands, each a tensor or a number."""

    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        return b.binary(kind, b.operand(argument(node, "self")), b.operand(argument(node, "other")))

    return lower


def _with_alpha(kind: BinaryKind, *, reverse: bool = False) -> Lowering:
    """`self` and `alpha * other`; or, reversed, `other` and `alpha * self`."""

    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        first, second = argument(node, "self"), argument(node, "other")
        if reverse:
            first, second = second, first
        return b.binary(kind, b.operand(first), _scaled_operand(b, second, argument(node, "alpha")))

    return lower


def arithmetic(b: ProgramBuilder, kind: BinaryKind, left: Tensor | float, right: Tensor | float) -> Tensor:
    """A broadcasting elementwise function of tensors and numbers."""
    first, second = (b.scalar(item) if isinstance(item, int | float) else item for item in (left, right))
    return b.binary(kind, first, second)


def _scaled_operand(b: ProgramBuilder, item: Node | float, factor: float) -> Tensor:
    if isinstance(item, int | float):
        return b.scalar(item * factor)
    return b.tensor(item) if factor == 1 else b.binary(BinaryKind.MULTIPLY, b.tensor(item), b.scalar(factor))


def reciprocal(b: ProgramBuilder, x: Tensor) -> Tensor:
    """1 / x."""
    return b.binary(BinaryKind.DIVIDE, b.scalar(1.0), x)


def _reciprocal(b: ProgramBuilder, node: Node) -> Tensor:
    return reciprocal(b, b.tensor(node.args[0]))  # type: ignore[arg-type]


def _reciprocal_square_root(b: ProgramBuilder, node: Node) -> Tensor:
    return _inverse_root(b, b.tensor(node.args[0]))  # type: ignore[arg-type]


def _inverse_root(b: ProgramBuilder, x: Tensor) -> Tensor:
    # XNNPACK's own ReciprocalSquareRoot makes a NaN of 0 where PyTorch says inf.
    return reciprocal(b, b.unary(UnaryKind.SQUARE_ROOT, x))


def _scaled(kind: UnaryKind, factor: float) -> Lowering:
    """A function times a number."""

    def lower(b: ProgramBuilder, node: Node) -> Tensor:
        return b.binary(BinaryKind.MULTIPLY, b.unary(kind, b.tensor(node.args[0])), b.scalar(factor))  # type: ignore[arg-type]

    return lower


def _square(b: ProgramBuilder, x: Tensor) -> Tensor:
    return b.unary(UnaryKind.SQUARE, x)


def exact_exponent(exponent: float) -> bool:
    """Whether squares, square roots and products make the power: whole numbers to 8, and quarters to 4."""
    return exponent != 0 and float(4 * exponent).is_integer() and abs(exponent) <= (8 if exponent % 1 == 0 else 4)


def _power(b: ProgramBuilder, node: Node) -> Tensor:
    exponent, x = float(argument(node, "exponent")), b.tensor(argument(node, "self"))
    whole, part = divmod(abs(exponent), 1.0)
    factors = []
    root = b.unary(UnaryKind.SQUARE_ROOT, x) if part else x
    if part in (0.5, 0.75):
        factors.append(root)
    if part in (0.25, 0.75):
        factors.append(b.unary(UnaryKind.SQUARE_ROOT, root))
    square = x
    for bit in range(int(whole).bit_length()):
        square = _square(b, square) if bit else x
        if int(whole) >> bit & 1:
            factors.append(square)
    result = factors.pop()
    while factors:
        result = b.binary(BinaryKind.MULTIPLY, result, factors.pop())
    return result if exponent > 0 else reciprocal(b, result)


# -- activations -----------------------------------------------------------------------------------------------------


def clamp_bounds(node: Node) -> tuple[float, float]:
    """The interval of relu, hardtanh or clamp; infinite where there is no bound."""
    name = str(node.target)
    if name == "aten.relu.default":
        return 0.0, math.inf
    low, high = (
        (argument(node, "min_val"), argument(node, "max_val"))
        if name == "aten.hardtanh.default"
        else (argument(node, "min"), argument(node, "max"))
    )
    return _as_bound(low, -math.inf), _as_bound(high, math.inf)


def _as_bound(number: float | None, absent: float) -> float:
    """A bound in float32: numbers beyond its range are infinite."""
    if number is None:
        return absent
    return math.copysign(math.inf, number) if abs(number) > torch.finfo(torch.float32).max else float(number)


def _clamp(b: ProgramBuilder, node: Node) -> Tensor:
    return b.clamp(b.tensor(node.args[0]), *clamp_bounds(node))  # type: ignore[arg-type]


def _clamp_between(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    for kind, name in ((BinaryKind.MAXIMUM, "min"), (BinaryKind.MINIMUM, "max")):
        bound = argument(node, name)
        if bound is not None:
            x = b.binary(kind, x, b.tensor(bound))
    return x


def _lerp(b: ProgramBuilder, node: Node) -> Tensor:
    start, end, weight = b.tensor(argument(node, "self")), b.tensor(argument(node, "end")), argument(node, "weight")
    way = b.binary(BinaryKind.SUBTRACT, end, start)
    if abs(weight) < 0.5:
        return b.binary(BinaryKind.ADD, start, arithmetic(b, BinaryKind.MULTIPLY, way, weight))
    return b.binary(BinaryKind.SUBTRACT, end, arithmetic(b, BinaryKind.MULTIPLY, way, 1.0 - weight))


# -- masks -----------------------------------------------------------------------------------------------------------


def filled_by_mask(node: Node, program: ProgramView) -> tuple[torch.Tensor, torch.Tensor, Node] | None:
    """Where `where` takes constants, which (broadcast to the mask's shape or further), and what it keeps elsewhere.

    None if the mask is computed, or both sides are.
    """
    mask = program.constant(argument(node, "condition"))
    sides = [argument(node, name) for name in ("self", "other")]
    known = [program.constant(side) for side in sides]
    if mask is None or (known[0] is None) == (known[1] is None):
        return None
    taken = 0 if known[0] is not None else 1
    fill = known[taken]
    assert fill is not None
    return mask if taken == 0 else ~mask, fill.detach().to(torch.float32), sides[1 - taken]


def _where(b: ProgramBuilder, node: Node) -> Tensor:
    # Bounds that are one number where the mask says so, and infinite elsewhere.
    found = filled_by_mask(node, b.view)
    assert found is not None
    mask, fill, kept = found
    x = b.tensor(kept)
    for kind, absent in ((BinaryKind.MAXIMUM, -math.inf), (BinaryKind.MINIMUM, math.inf)):
        bound = torch.where(mask, fill, absent)
        if not bool((bound == absent).all()):
            x = b.binary(kind, x, Tensor.dense(b.constant(bound)))
    return x if x.shape == shape_of(node) else expand(b, x, shape_of(node))


def _hardsigmoid(b: ProgramBuilder, node: Node) -> Tensor:
    shifted = b.binary(BinaryKind.ADD, b.tensor(node.args[0]), b.scalar(3.0))  # type: ignore[arg-type]
    return b.binary(BinaryKind.DIVIDE, b.clamp(shifted, 0.0, 6.0), b.scalar(6.0))


def _leaky_relu(b: ProgramBuilder, node: Node) -> Tensor:
    slope = float(argument(node, "negative_slope"))
    return b.map(ops.LeakyRelu(slope), b.tensor(argument(node, "self")))


def _elu(b: ProgramBuilder, node: Node) -> Tensor:
    result = b.map(ops.Elu(float(argument(node, "alpha"))), b.tensor(argument(node, "self")))
    scale = argument(node, "scale")
    return result if scale == 1 else b.binary(BinaryKind.MULTIPLY, result, b.scalar(scale))


def _prelu(b: ProgramBuilder, node: Node) -> Tensor:
    x, slope = b.tensor(argument(node, "self")), b.tensor(argument(node, "weight"))
    if not x.shape:
        slope = b.reshape(slope, ())
    elif len(x.shape) > 1 and slope.value.size != 1:
        slope = b.reshape(slope, (slope.value.size, *[1] * (len(x.shape) - 2)))
    return b.binary(BinaryKind.PRELU, x, slope)


def sigmoid_weighted(b: ProgramBuilder, x: Tensor, gate: Tensor) -> Tensor:
    """x * sigmoid(gate)."""
    return b.binary(BinaryKind.MULTIPLY, x, b.unary(UnaryKind.SIGMOID, gate))


def _silu(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(node.args[0])  # type: ignore[arg-type]
    return sigmoid_weighted(b, x, x)


def _gelu(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    if argument(node, "approximate") == "none":
        return b.unary(UnaryKind.GELU, x)
    # x (1 + tanh u) / 2 = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3). Beyond +-100 the sigmoid is 0 or 1,
    # and XNNPACK's overflows for arguments that a cube reaches.
    twice = 2.0 * math.sqrt(2.0 / math.pi)
    cubic = b.binary(BinaryKind.MULTIPLY, b.unary(UnaryKind.SQUARE, x), b.scalar(twice * 0.044715))
    factor = b.binary(BinaryKind.ADD, cubic, b.scalar(twice))
    return sigmoid_weighted(b, x, b.clamp(b.binary(BinaryKind.MULTIPLY, factor, x), -100.0, 100.0))


def _glu(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    axis = argument(node, "dim") % len(x.shape)
    half = shape_of(node)[axis]
    return sigmoid_weighted(b, b.slice(x, axis, 0, half), b.slice(x, axis, half, half))


def _to_type(b: ProgramBuilder, node: Node) -> Tensor:
    # The result becomes of the node's type; what is converted is what the program has, rounded.
    return b.stored_tensor(argument(node, "self"))


def _expand(b: ProgramBuilder, node: Node) -> Tensor:
    return expand(b, b.tensor(node.args[0]), shape_of(node))  # type: ignore[arg-type]


def expand(b: ProgramBuilder, x: Tensor, shape: Shape) -> Tensor:
    """`x` repeated along axes of size 1: a product with ones, whose broadcasting does it."""
    x = b.reshape(x, (1,) * (len(shape) - len(x.shape)) + x.shape)
    repeats = tuple(1 if have == want else want for have, want in zip(x.shape, shape, strict=True))
    return b.binary(BinaryKind.MULTIPLY, x, b.filled(repeats, 1.0))


def _repeat(b: ProgramBuilder, node: Node) -> Tensor:
    x = b.tensor(argument(node, "self"))
    tiles, sizes = repeat_tiles(node), []
    if dynamic_count(shape_of(node)) > 1:
        x = b.reshape(x, tuple(size for _, size in tiles))
        for axis, (tile, _) in enumerate(tiles):
            x = b.concatenated([x] * tile, axis)
        return x
    for tile, size in tiles:
        sizes += [1, size] if tile > 1 else [size]
    wanted: list[Size] = []
    for tile, size in tiles:
        wanted += [tile, size] if tile > 1 else [size]
    return b.reshape(expand(b, b.reshape(x, tuple(sizes)), tuple(wanted)), shape_of(node))


def repeat_tiles(node: Node) -> list[tuple[int, Size]]:
    """For each axis of the result of `repeat`: how often, and the size that is repeated."""
    repeats, shape = argument(node, "repeats"), shape_of(argument(node, "self"))
    return list(zip(repeats, (1,) * (len(repeats) - len(shape)) + shape, strict=True))


LOWERINGS: dict[str, Lowering] = {
    "aten.abs.default": _unary(UnaryKind.ABS),
    "aten.ceil.default": _unary(UnaryKind.CEILING),
    "aten.cos.default": _unary(UnaryKind.COS),
    "aten.exp.default": _unary(UnaryKind.EXP),
    "aten.floor.default": _unary(UnaryKind.FLOOR),
    "aten.hardswish.default": _unary(UnaryKind.HARDSWISH),
    "aten.log.default": _unary(UnaryKind.LOG),
    "aten.log2.default": _scaled(UnaryKind.LOG, 1.0 / math.log(2.0)),
    "aten.log10.default": _scaled(UnaryKind.LOG, 1.0 / math.log(10.0)),
    "aten.neg.default": _unary(UnaryKind.NEGATE),
    "aten.reciprocal.default": _reciprocal,
    "aten.rsqrt.default": _reciprocal_square_root,
    "aten.sigmoid.default": _unary(UnaryKind.SIGMOID),
    "aten.sin.default": _unary(UnaryKind.SIN),
    "aten.sqrt.default": _unary(UnaryKind.SQUARE_ROOT),
    "aten.square.default": _unary(UnaryKind.SQUARE),
    "aten.tanh.default": _unary(UnaryKind.TANH),
    "aten.pow.Tensor_Scalar": _power,
    "aten.add.Tensor": _with_alpha(BinaryKind.ADD),
    "aten.add.Scalar": _with_alpha(BinaryKind.ADD),
    "aten.sub.Tensor": _with_alpha(BinaryKind.SUBTRACT),
    "aten.sub.Scalar": _with_alpha(BinaryKind.SUBTRACT),
    "aten.rsub.Tensor": _with_alpha(BinaryKind.SUBTRACT, reverse=True),
    "aten.rsub.Scalar": _with_alpha(BinaryKind.SUBTRACT, reverse=True),
    "aten.mul.Tensor": _binary(BinaryKind.MULTIPLY),
    "aten.mul.Scalar": _binary(BinaryKind.MULTIPLY),
    "aten.div.Tensor": _binary(BinaryKind.DIVIDE),
    "aten.div.Scalar": _binary(BinaryKind.DIVIDE),
    "aten.maximum.default": _binary(BinaryKind.MAXIMUM),
    "aten.minimum.default": _binary(BinaryKind.MINIMUM),
    "aten.relu.default": _clamp,
    "aten.hardtanh.default": _clamp,
    "aten.clamp.default": _clamp,
    "aten.clamp.Tensor": _clamp_between,
    "aten.lerp.Scalar": _lerp,
    "aten.where.self": _where,
    "aten.hardsigmoid.default": _hardsigmoid,
    "aten.leaky_relu.default": _leaky_relu,
    "aten.elu.default": _elu,
    "aten.prelu.default": _prelu,
    "aten.silu.default": _silu,
    "aten.gelu.default": _gelu,
    "aten.glu.default": _glu,
    "aten._to_copy.default": _to_type,
    "aten.expand_copy.default": _expand,
    "aten.repeat.default": _repeat,
}
