"""Graphs refused by verification. The tests with the reference model show that correct ones are accepted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from delegatekit_api import LoweringError
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import OPERATORS, DType, rules

I8, I16, I32, I48, BOOL = DType.INT8, DType.INT16, DType.INT32, DType.INT48, DType.BOOL


def test_every_operator_has_a_rule() -> None:
    assert set(rules._RULES) == set(OPERATORS.values())


class Builder:
    """Shorthand for operands."""

    def __init__(self) -> None:
        self.graph = tosa.Graph()

    def x(self, *shape: int, dtype: DType = I8) -> tosa.Tensor:
        return self.graph.input("x", shape, dtype)

    def c(self, *values: int, dtype: DType = I8) -> tosa.Tensor:
        return self.graph.constant(list(values), dtype)

    def s(self, *values: int) -> tosa.Tensor:
        return self.graph.constant(list(values), DType.SHAPE)

    def conv(self, source: Sequence[int], weight: Sequence[int], bias: int, zero: int = 0) -> list[tosa.Tensor]:
        biases = self.graph.constant([0] * bias, I32)
        return [self.x(*source), self.x(*weight), biases, self.c(zero), self.c(0)]

    def scaled(self, multipliers: int = 1, shift: int = 30, source: DType = I32, zero: int = 0) -> list[tosa.Tensor]:
        count = self.graph.constant([1] * multipliers, I32)
        shifts = self.graph.constant([shift] * multipliers, I8)
        return [self.x(2, 3, dtype=source), count, shifts, self.c(zero, dtype=source), self.c(0)]


Operands = Callable[[Builder], list[tosa.Tensor]]

REFUSED: list[tuple[tosa.Operator, Operands, str]] = [
    (tosa.Conv2d(), lambda b: b.conv((1, 4, 4), (2, 1, 1, 3), 2), "x has 3 axes, not 4"),
    (tosa.Conv2d(), lambda b: b.conv((1, 4, 4, 5), (2, 1, 1, 3), 2), "weights for 3 channels meet 5"),
    (tosa.Conv2d(), lambda b: b.conv((1, 4, 4, 3), (2, 1, 1, 3), 3), "bias is INT32.3., not INT32 for 2 channels"),
    (tosa.Conv2d(stride=(2, 2)), lambda b: b.conv((1, 4, 4, 3), (2, 3, 3, 3), 2), "windows of 3 in steps of 2"),
    (tosa.Conv2d(), lambda b: b.conv((1, 4, 4, 3), (2, 5, 3, 3), 2), "windows of 5"),
    (tosa.Conv2d(stride=(0, 1)), lambda b: b.conv((1, 4, 4, 3), (2, 1, 1, 3), 2), "stride 0"),
    (tosa.Conv2d((-1, 0, 0, 0)), lambda b: b.conv((1, 4, 4, 3), (2, 1, 1, 3), 2), "padding -1, 0 is too small"),
    (tosa.Conv2d(acc_type=I48), lambda b: b.conv((1, 4, 4, 3), (2, 1, 1, 3), 2), "not INT48 for 2"),
    (tosa.DepthwiseConv2d(), lambda b: b.conv((1, 4, 4, 3), (3, 3, 4, 1), 4), "weights for 4 channels meet 3"),
    (tosa.TransposeConv2d((-3, 0, 0, 0)), lambda b: b.conv((1, 4, 4, 3), (2, 3, 3, 3), 2), "crops more"),
    (tosa.Matmul(), lambda b: [b.x(1, 2, 3), b.x(1, 2, 3), b.c(0), b.c(0)], "is not multiplied by"),
    (tosa.Matmul(), lambda b: [b.x(1, 2, 3), b.x(1, 3, 3, dtype=I16), b.c(0), b.c(0)], "types: INT8, INT16"),
    (tosa.AvgPool2d((2, 2), pad=(2, 0, 0, 0)), lambda b: [b.x(1, 4, 4, 3), b.c(0), b.c(0)], "not less than the window"),
    (tosa.AvgPool2d((2, 2)), lambda b: [b.x(1, 4, 4, 3), b.c(0, 0), b.c(0)], "zero point .* is 2 of INT8, not one of"),
    (tosa.Add(), lambda b: [b.x(2, 3, dtype=I32), b.x(3, dtype=I32)], "different numbers of axes"),
    (tosa.Add(), lambda b: [b.x(2, 3, dtype=I32), b.x(2, 2, dtype=I32)], "sizes do not fit"),
    (tosa.Greater(), lambda b: [b.x(2, dtype=I32), b.x(2)], "different types"),
    (tosa.Mul(), lambda b: [b.x(2), b.x(2), b.c(1)], "a product of INT8 is not shifted"),
    (tosa.Mul(), lambda b: [b.x(2), b.x(2), b.c(0, dtype=I32)], "the shift is not one int8"),
    (tosa.Select(), lambda b: [b.x(2), b.x(2), b.x(2)], "chooses by INT8"),
    (tosa.Negate(), lambda b: [b.x(2, dtype=I32), b.c(1, dtype=I32), b.c(0, dtype=I32)], "of INT32 must be 0"),
    (tosa.Clamp(3, 2), lambda b: [b.x(2)], "wrong order"),
    (tosa.Table(), lambda b: [b.x(2), b.x(255)], "a table of 255 INT8 is not for INT8"),
    (tosa.Rescale(), lambda b: b.scaled(multipliers=3), "3 multipliers and 3 shifts for 1 channels"),
    (tosa.Rescale(per_channel=True), lambda b: b.scaled(multipliers=2), "for 3 channels"),
    (tosa.Rescale(), lambda b: b.scaled(shift=1), "shifts go from 1 to 1"),
    (tosa.Rescale(scale32=False), lambda b: b.scaled(), "not INT16 and INT8"),
    (tosa.Rescale(), lambda b: b.scaled(source=I48), "int48 needs multipliers of 16 bits"),
    (tosa.Rescale(), lambda b: b.scaled(zero=1), "the zero point of INT32 must be 0"),
    (tosa.ReduceSum(2), lambda b: [b.x(2, 3)], "axis 2 is not one of the 2"),
    (tosa.Reverse(-1), lambda b: [b.x(2, 3)], "axis -1"),
    (tosa.Reshape(), lambda b: [b.x(2, 3), b.s(5)], "6 elements do not fill"),
    (tosa.Reshape(), lambda b: [b.x(2, 3), b.c(6)], "not a constant SHAPE"),
    (tosa.Transpose((0, 0)), lambda b: [b.x(2, 3)], "not an order of 2 axes"),
    (tosa.Concat(0), lambda b: [b.x(2, 3), b.x(2, 4)], "sizes beside the axis differ"),
    (tosa.Concat(1), lambda b: [b.x(2, 3), b.x(2)], "sizes beside the axis differ"),
    (tosa.Pad(), lambda b: [b.x(2, 3), b.s(0, 0), b.c(0)], "2 numbers, not 4"),
    (tosa.Pad(), lambda b: [b.x(2), b.s(0, -1), b.c(0)], "is negative"),
    (tosa.Pad(), lambda b: [b.x(2), b.s(0, 1), b.c(0, dtype=I32)], "pads INT8 with 1 of INT32"),
    (tosa.Slice(), lambda b: [b.x(4), b.s(2), b.s(3)], "3 from 2 on are not within 4"),
    (tosa.Tile(), lambda b: [b.x(4), b.s(0)], "repeats"),
    (tosa.Gather(), lambda b: [b.x(2, 3, 4), b.x(2, 2)], "indices are INT8"),
    (
        tosa.Scatter(),
        lambda b: [b.x(2, 3, 4), b.x(2, 2, dtype=I32), b.x(2, 3, 4)],
        "is not written into",
    ),
    (
        tosa.Resize(tosa.ResizeMode.NEAREST),
        lambda b: [b.x(1, 4, 4, 1), b.s(4, 3, 4, 3), b.s(0, 0), b.s(1, 1)],
        "give no whole size",
    ),
]


@pytest.mark.parametrize(("operator", "operands", "message"), REFUSED, ids=[f"{r[0].name}-{r[2]}" for r in REFUSED])
def test_broken_rules_are_named(operator: tosa.Operator, operands: Operands, message: str) -> None:
    builder = Builder()
    builder.graph.add(operator, operands(builder), (1, 1), I8, "y")
    with pytest.raises(LoweringError, match=f"^{operator.name} y: .*{message}"):
        builder.graph.verify()


@pytest.mark.parametrize(
    ("shape", "dtype", "given"), [((2, 4), I8, r"INT8\[2, 4\]"), ((2, 3), I32, r"INT32\[2, 3\]"), ((6,), I8, "INT8")]
)
def test_a_result_of_another_shape_or_type_is_refused(shape: Any, dtype: DType, given: str) -> None:
    builder = Builder()
    builder.graph.add(tosa.Identity(), [builder.x(2, 3)], shape, dtype, "y")
    with pytest.raises(LoweringError, match=rf"IDENTITY y: gives INT8\[2, 3\], not {given}"):
        builder.graph.verify()


def test_a_cast_may_have_any_type_but_no_other_shape() -> None:
    builder = Builder()
    x = builder.x(2, 3)
    builder.graph.add(tosa.Cast(), [x], (2, 3), I32, "y")
    builder.graph.verify()
    builder.graph.add(tosa.Cast(), [x], (3, 2), I32, "y")
    with pytest.raises(LoweringError, match="CAST y_1"):
        builder.graph.verify()
