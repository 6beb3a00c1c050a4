"""Tensors of the program in the QNN graph: the order of their axes in memory."""

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

    Numbers are floats or integers with an encoding: readers convert them as needed.
    """

    tensor: Tensor
    order: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The program's shape."""
        return tuple(self.tensor.shape[place] for place in inverse(self.order))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.order)

    @property
    def is_fixed(self) -> bool:
        """True if its numbers are integers with an encoding."""
        return self.tensor.datatype.is_fixed_point

    def permuted(self, dims: Sequence[int]) -> Value:
        """The program's tensor with its axes in the order `dims`; nothing moves."""
        return Value(self.tensor, tuple(inverse(dims)[axis] for axis in self.order))

    def stored_axis(self, axis: int) -> int:
        """The stored position of the program's axis (which may be counted from the end)."""
        return self.order.index(axis % len(self.order))
