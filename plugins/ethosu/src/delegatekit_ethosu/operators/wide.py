"""Functions of single values of int16 that bend where its tables have no entries: a few steps of arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from delegatekit_api import argument
from delegatekit_toolkit.tosa import Abs, Add, DType, Maximum, Minimum, Mul, Sub, Tensor

from ..ir.builder import Emitter, Lowering, Result
from ..ir.values import Value
from .elementwise import sloped

if TYPE_CHECKING:
    from torch.fx import Node

#: 1, for gates.
_ONE = 1 << 15


def _operand(b: Lowering, node: Node) -> tuple[Value, float]:
    """The operand and its scale."""
    operand = argument(node, "self")
    return b.integers(operand), b.scale(operand).scale


def _absolute(b: Lowering, node: Node, result: Result) -> Value:
    value, scale = _operand(b, node)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    made = b.emit(Abs(), (side,), side.shape, DType.INT32, "absolute")
    return Value(b.stored_as(made, [scale], result), value.order)


def _negative(b: Lowering, node: Node, result: Result) -> Value:
    value, scale = _operand(b, node)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    made = b.emit(Sub(), (b.single(0, side.shape, left=True), side), side.shape, DType.INT32, "negative")
    return Value(b.stored_as(made, [scale], result), value.order)


def _leaky(b: Lowering, node: Node, result: Result) -> Value:
    value, _ = _operand(b, node)
    slopes = np.full([1] * len(value.order), float(argument(node, "negative_slope")))
    return Value(sloped(b, value.tensor, b.scale(argument(node, "self")), slopes, result), value.order)


def _gates(b: Lowering, x: Tensor, scale: float) -> Tensor:
    """x / 6 + 1 / 2, from 0 to 1."""
    parts = b.rescaled(x, [scale / 6 * _ONE], name="sixth")
    raised = b.emit(Add(), (parts, b.single(_ONE // 2, x.shape)), x.shape, DType.INT32, "raised")
    positive = b.emit(Maximum(), (raised, b.single(0, x.shape)), x.shape, DType.INT32, "positive")
    return b.emit(Minimum(), (positive, b.single(_ONE, x.shape)), x.shape, DType.INT32, "gates")


def _hardsigmoid(b: Lowering, node: Node, result: Result) -> Value:
    value, scale = _operand(b, node)
    return Value(b.stored_as(_gates(b, value.tensor, scale), [1 / _ONE], result), value.order)


def _hardswish(b: Lowering, node: Node, result: Result) -> Value:
    value, scale = _operand(b, node)
    side = b.rescaled(value.tensor, [1.0], name="operand")
    operands = side, _gates(b, value.tensor, scale), b.number(0)
    products = b.emit(Mul(), operands, side.shape, DType.INT32, "product")
    return Value(b.stored_as(products, [scale / _ONE], result), value.order)


EMITTERS: dict[str, Emitter] = {
    "aten.abs.default": _absolute,
    "aten.hardsigmoid.default": _hardsigmoid,
    "aten.hardswish.default": _hardswish,
    "aten.leaky_relu.default": _leaky,
    "aten.neg.default": _negative,
}
