"""Elementwise operators: arithmetic, comparisons, logic, functions, choices, conversions."""

from __future__ import annotations

from typing import Final

from delegatekit_api import Call
from delegatekit_toolkit.support import Row, row

from ..ir.graph import Tensor
from ..ir.types import DataType
from .program import Lower, ProgramBuilder

# -- arithmetic --------------------------------------------------------------------------------------------------------


def _operands(b: ProgramBuilder, call: Call) -> tuple[Tensor, Tensor]:
    """Both operands; a number takes the tensor's type."""
    left = b.tensor(call["self"])
    return left, b.operand(call["other"], left.datatype)


def _binary(operator: str) -> Lower:
    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        return b.call(operator, _operands(b, call), b.shape(call), b.result_type(call))

    return lower


def _sum(operator: str) -> Lower:
    """With `alpha`, the factor of the second operand."""

    def lower(b: ProgramBuilder, call: Call) -> Tensor:
        left, right = _operands(b, call)
        return b.call(operator, [left, right, call["alpha"]], b.shape(call), b.result_type(call))

    return lower


def _maximum(b: ProgramBuilder, call: Call) -> Tensor:
    """The runtime has the minimum only: -min(-a, -b)."""
    left, right = (b.call("aten.neg.default", [item], item.shape) for item in _operands(b, call))
    least = b.call("aten.minimum.default", [left, right], b.shape(call))
    return b.call("aten.neg.default", [least], b.shape(call))


ROWS: Final[tuple[Row[Lower], ...]] = (
    row("add.Tensor add.Scalar", _sum("aten.add.Tensor")),
    row("sub.Tensor sub.Scalar", _sum("aten.sub.Tensor")),
    row("mul.Tensor mul.Scalar", _binary("aten.mul.Tensor")),
    row("div.Tensor div.Scalar", _binary("aten.div.Tensor")),
)
_ = DataType
