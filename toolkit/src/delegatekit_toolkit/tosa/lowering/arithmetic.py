"""Arithmetic on int32 tensors of four axes, in concise form."""

from __future__ import annotations

from delegatekit_toolkit.tosa import (
    Add,
    ArithmeticRightShift,
    Clz,
    DType,
    LogicalLeftShift,
    Maximum,
    Minimum,
    Mul,
    Operator,
    Sub,
    Tensor,
)

from .builder import TosaBuilder


class Arithmetic:
    """int32 arithmetic with broadcasting; numbers become constants."""

    def __init__(self, b: TosaBuilder) -> None:
        self.b = b

    def do(self, operator: Operator, left: Tensor | int, right: Tensor | int, name: str, *more: Tensor) -> Tensor:
        """An operation on two tensors, or a tensor and a number, with broadcasting."""
        first, second = (
            self.b.graph.constant([[[[item]]]], DType.INT32) if isinstance(item, int) else item
            for item in (left, right)
        )
        shape = [max(pair) for pair in zip(first.shape, second.shape, strict=True)]
        return self.b.emit(operator, (first, second, *more), shape, DType.INT32, name)

    def add(self, left: Tensor | int, right: Tensor | int, name: str) -> Tensor:
        """The sum."""
        return self.do(Add(), left, right, name)

    def sub(self, left: Tensor | int, right: Tensor | int, name: str) -> Tensor:
        """The difference."""
        return self.do(Sub(), left, right, name)

    def mul(self, left: Tensor, right: Tensor | int, name: str, shift: int = 0) -> Tensor:
        """The product divided by 2^shift, rounded."""
        return self.do(Mul(), left, right, name, self.b.number(shift))

    def zeros(self, x: Tensor) -> Tensor:
        """Leading zeros."""
        return self.b.emit(Clz(), (x,), x.shape, DType.INT32, "zeros")

    def left(self, x: Tensor, places: Tensor | int, name: str) -> Tensor:
        """x * 2^places, which must fit; 0 to 31."""
        return self.do(LogicalLeftShift(), x, places, name)

    def right(self, x: Tensor | int, places: Tensor | int, name: str) -> Tensor:
        """x / 2^places, rounded half up; 0 to 31."""
        return self.do(ArithmeticRightShift(round=True), x, places, name)

    def shifted(self, x: Tensor, places: Tensor, name: str) -> Tensor:
        """x * 2^places; at most 31 places count in either direction."""
        up = self.do(Minimum(), self.do(Maximum(), places, 0, "up"), 31, "up")
        down = self.do(Minimum(), self.do(Maximum(), self.sub(0, places, "down"), 0, "down"), 31, "down")
        return self.right(self.left(x, up, name), down, name)
