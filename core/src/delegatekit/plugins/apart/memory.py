"""Memory shared by two processes: bytes in an anonymous file, and the tensors of a delegate's calls in one."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from math import prod
from typing import Any, Final

import torch

from delegatekit_api import TensorSpec

#: Alignment of pieces in bytes, and the least gap between them.
_ALIGNMENT: Final = 64
#: The initial content of outputs, so that elements that a runtime does not write are noticed.
_UNWRITTEN: Final = 0xFF


def new_file(size: int) -> int:
    """An anonymous file of this many zero bytes; returns its descriptor."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("delegatekit")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.truncate(file, size)
    return file


def write_pieces(pieces: Sequence[Any]) -> tuple[int, list[tuple[int, int]]]:
    """A file with bytes-like pieces; returns its descriptor, and offset and size of each."""
    views = [memoryview(piece).cast("B") for piece in pieces]
    places, end = [], 0
    for view in views:
        places.append((end, len(view)))
        end += -(-len(view) // _ALIGNMENT) * _ALIGNMENT
    file = new_file(max(end, 1))
    with mmap.mmap(file, 0) as mapped:
        for view, (start, size) in zip(views, places, strict=True):
            mapped[start : start + size] = view
    return file, places


def read_pieces(file: int, places: Sequence[Sequence[int]]) -> list[memoryview]:
    """The pieces of such a file, which is closed: read-only views of its pages."""
    try:
        mapped = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
    finally:
        os.close(file)
    return [mapped[start : start + size] for start, size in places]


class Arena:
    """Inputs and outputs of the calls of one delegate, in memory shared by both processes.

    The creator passes `file` on; the other process makes its own on the same file.
    """

    def __init__(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], gap: int, file: int | None) -> None:
        """`gap` is the number of bytes that may be read past the end of a tensor. Without `file`, the memory is new."""
        starts, end = [], 0
        for spec in (*inputs, *outputs):
            starts.append(end)
            end += -(-(_size(spec) + gap + 1) // _ALIGNMENT) * _ALIGNMENT
        self.file = new_file(max(end, 1)) if file is None else file
        self._mapped = mmap.mmap(self.file, 0)
        if file is None and outputs:
            start = starts[len(inputs)]
            torch.frombuffer(self._mapped, dtype=torch.uint8, offset=start).fill_(_UNWRITTEN)
        slots = [Slot(spec, self._mapped, start) for spec, start in zip((*inputs, *outputs), starts, strict=True)]
        self.inputs, self.outputs = slots[: len(inputs)], slots[len(inputs) :]

    def close_file(self) -> None:
        """Close the descriptor; the memory stays as long as its tensors."""
        os.close(self.file)


class Slot:
    """The place of one tensor in an arena, with the bytes of the largest sizes."""

    def __init__(self, spec: TensorSpec, mapped: mmap.mmap, start: int) -> None:
        self.spec = spec
        self.dtype: torch.dtype = getattr(torch, spec.dtype)
        self.capacity = prod(spec.shape)
        self.memory = memoryview(mapped)[start : start + self.capacity * self.dtype.itemsize]
        self._order = spec.dim_order or range(len(spec.shape))
        # A storage of its own, so that PyTorch keeps a tensor from growing into the next.
        self._all = (
            torch.frombuffer(mapped, dtype=self.dtype, count=self.capacity, offset=start)
            if self.capacity
            else torch.empty(0, dtype=self.dtype)
        )
        self.largest = torch.Size(spec.shape)
        self._last = self.view(self.largest, self.strides(self.largest))

    def tensor(self, shape: torch.Size) -> torch.Tensor:
        """The tensor with these sizes; the same object while they do not change."""
        if self._last.shape != shape:
            self._last = self.view(shape, self.strides(shape))
        return self._last

    def view(self, shape: Sequence[int], strides: Sequence[int]) -> torch.Tensor:
        """A new tensor at this place."""
        return self._all.as_strided(shape, strides, 0)

    def strides(self, shape: Sequence[int]) -> list[int]:
        """The strides of a tensor of these sizes that is dense in the spec's dim order; else in its own."""
        order = self._order if len(shape) == len(self._order) else range(len(shape))
        strides, step = [0] * len(shape), 1
        for axis in reversed(order):
            strides[axis] = step
            step *= max(shape[axis], 1)
        return strides

    def is_here(self, tensor: torch.Tensor) -> bool:
        """True if a tensor's elements are at this place."""
        return not tensor.numel() or tensor.data_ptr() == self._all.data_ptr()


def _size(spec: TensorSpec) -> int:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    return prod(spec.shape) * dtype.itemsize
