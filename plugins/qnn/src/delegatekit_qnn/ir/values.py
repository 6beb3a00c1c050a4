"""Tensors of the program in the QNN graph: how their axes lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from delegatekit_toolkit.layout import inverse

from .graph import Tensor


def reordered(shape: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """A shape with its axes in another order."""
    return tuple(shape[axis] for axis in order)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph whose axis i is axis `order[i]` of the program's: permutations need not move anything.

    Numbers may be in it as floats or as integers with an encoding: what reads it converts it as it needs it.
    """

    tensor: Tensor
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the program sees."""
        return tuple(self.tensor.shape[place] for place in inverse(self.order))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.order)

    @property
    def is_fixed(self) -> bool:
        """Whether its numbers are integers with an encoding."""
        return self.tensor.datatype.is_fixed_point

    def permuted(self, dims: Sequence[int]) -> Value:
        """The program's tensor with its axes in the order `dims`; nothing moves."""
        return Value(self.tensor, tuple(inverse(dims)[axis] for axis in self.order))

    def stored_axis(self, axis: int) -> int:
        """Where the program's axis (which may be counted from the end) lies."""
        return self.order.index(axis % len(self.order))
