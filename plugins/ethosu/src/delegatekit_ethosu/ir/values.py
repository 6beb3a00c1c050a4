"""Tensors of the program in the TOSA graph: how their axes lie in memory, and what their integers stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

from delegatekit_toolkit.layout import identity, inverse, to_channels_last
from delegatekit_toolkit.tosa import DType, Tensor

#: (N, C, H, W) stored as (N, H, W, C), and (N, C, L) as (N, L, C).
CHANNELS_LAST: Final = to_channels_last(4)
ROWS_OF_CHANNELS: Final = to_channels_last(3)
#: Torch's integers and booleans, as TOSA has them; of int64 only constant indices are taken.
INTEGERS: Final = {
    torch.int8: DType.INT8,
    torch.int16: DType.INT16,
    torch.int32: DType.INT32,
    torch.int64: DType.INT32,
    torch.bool: DType.BOOL,
}


@dataclass(frozen=True, eq=False)
class Value:
    """A TOSA tensor whose axis i is axis `order[i]` of the program's tensor: permutations need not move anything."""

    tensor: Tensor
    order: tuple[int, ...]

    @classmethod
    def dense(cls, tensor: Tensor) -> Value:
        """A tensor stored as the program has it."""
        return cls(tensor, identity(len(tensor.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that the program sees."""
        return tuple(self.tensor.shape[place] for place in inverse(self.order))

    def permuted(self, dims: Sequence[int]) -> Value:
        """The program's tensor with its axes in the order `dims`; nothing moves."""
        return Value(self.tensor, tuple(inverse(dims)[axis] for axis in self.order))

    def stored_axis(self, axis: int) -> int:
        """Where the program's axis lies."""
        return self.order.index(axis)


@dataclass(frozen=True)
class Scale:
    """What integers of a tensor stand for: real = scale * (integer - zero_point)."""

    scale: float
    zero_point: int
    dtype: DType = DType.INT8


@dataclass(frozen=True)
class Result:
    """How the result of an operation is stored, and the bounds that a clamp after it leaves; None: the type's."""

    scale: Scale
    bounds: tuple[int, int] | None = None
