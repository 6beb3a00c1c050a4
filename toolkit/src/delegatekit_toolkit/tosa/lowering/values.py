"""Tensors of the program in the TOSA graph: the order of their axes in memory, and their quantization."""

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
        """A tensor in the program's layout."""
        return cls(tensor, identity(len(tensor.shape)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The program's shape."""
        return tuple(self.tensor.shape[place] for place in inverse(self.order))

    def permuted(self, dims: Sequence[int]) -> Value:
        """The program's tensor with its axes in the order `dims`; nothing moves."""
        return Value(self.tensor, tuple(inverse(dims)[axis] for axis in self.order))

    def stored_axis(self, axis: int) -> int:
        """The stored position of the program's axis."""
        return self.order.index(axis)


@dataclass(frozen=True)
class Scale:
    """The quantization of a tensor: real = scale * (integer - zero_point)."""

    scale: float
    zero_point: int
    dtype: DType = DType.INT8


@dataclass(frozen=True)
class Result:
    """The storage of an operation's result, and the bounds of a clamp after it; None: the type's."""

    scale: Scale
    bounds: tuple[int, int] | None = None
