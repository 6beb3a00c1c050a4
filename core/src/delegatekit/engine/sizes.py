"""Sizes of the tensors that instructions write: fixed, or changing from call to call within the planned ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch


class Sizes:
    """The allowed sizes of a planned tensor.

    Its storage has the bytes of the largest and cannot grow: PyTorch raises RuntimeError if a kernel needs more.
    """

    def __init__(self, tensor: torch.Tensor, dim_order: Sequence[int], *, dynamic: bool) -> None:
        self.tensor = tensor
        self.dynamic = dynamic
        self.largest = tensor.shape
        self._capacity = tensor.numel()
        self._order = tuple(dim_order)
        self._contiguous = self._order == tuple(range(len(self._order)))

    def takes(self, shape: Sequence[int]) -> bool:
        """True if a caller may give the tensor these sizes: none larger than in the file."""
        return len(shape) == len(self.largest) and all(map(int.__le__, shape, self.largest))

    def resize(self, shape: Sequence[int]) -> None:
        """Give the tensor these sizes; the content of its memory stays. Raises ValueError if they do not fit."""
        if len(shape) != len(self.largest) or math.prod(shape) > self._capacity:
            raise ValueError(f"sizes {tuple(shape)} do not fit into a tensor of {self.described}")
        if self._contiguous:
            self.tensor.resize_(shape)
        else:
            self.tensor.as_strided_(shape, self._strides(shape))

    @property
    def settled(self) -> bool:
        """True if the tensor has allowed sizes, in the file's dim order."""
        tensor = self.tensor
        if not self.dynamic:
            return tensor.shape == self.largest
        return self._contiguous and tensor.dim() == len(self.largest) and tensor.is_contiguous()

    def settle(self) -> str | None:
        """Check the sizes that a kernel gave the tensor: None, or the fault, which is corrected.

        If the kernel chose another dim order than the file's, the elements are reordered.
        """
        shape = self.tensor.shape
        fits = len(shape) == len(self.largest) and self.tensor.numel() <= self._capacity
        if not fits or not (self.dynamic or shape == self.largest):
            self.tensor.as_strided_(self.largest, self._strides(self.largest))
            return f"to {tuple(shape)}, but in the file it has {self.described}"
        if self.dynamic and not (self._contiguous and self.tensor.is_contiguous()):
            strides = self._strides(shape)
            if self.tensor.stride() != strides:
                content = self.tensor.clone()
                self.tensor.as_strided_(shape, strides)
                self.tensor.copy_(content)
        return None

    @property
    def overflows(self) -> bool:
        """True if a kernel needed more elements than there is memory for, and failed."""
        return self.tensor.numel() > self._capacity

    @property
    def described(self) -> str:
        """The sizes in words."""
        return f"{tuple(self.largest)}" + (" at most" if self.dynamic else "")

    def _strides(self, shape: Sequence[int]) -> tuple[int, ...]:
        strides = [0] * len(shape)
        step = 1
        for axis in reversed(self._order):
            strides[axis] = step
            step *= max(shape[axis], 1)
        return tuple(strides)
