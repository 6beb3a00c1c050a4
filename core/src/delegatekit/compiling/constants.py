"""Constants in a file that another process maps into its memory, and pieces of constants that results refer to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from delegatekit_toolkit.content import elements, storage_key

#: Where a constant begins in the file: at a multiple of so many bytes.
_ALIGNMENT: Final = 64


def write_constants(path: Path, constants: Sequence[torch.Tensor]) -> list[int]:
    """Write the constants' elements in row-major order, equal ones once; returns where each begins."""
    places: dict[object, int] = {}
    offsets = []
    with path.open("wb") as file:
        for constant in constants:
            key = storage_key(constant)
            if key not in places:
                file.write(bytes(-file.tell() % _ALIGNMENT))
                places[key] = file.tell()
                file.write(elements(constant).numpy().data)
            offsets.append(places[key])
        file.write(bytes(_ALIGNMENT))  # a file that is mapped is not empty
    return offsets


def map_constants(
    path: Path, offsets: Sequence[int], shapes: Sequence[Sequence[int]], dtypes: Sequence[str]
) -> list[torch.Tensor]:
    """The constants of such a file: tensors on its pages, which this process may change for itself only."""
    mapped = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    found = []
    for offset, shape, name in zip(offsets, shapes, dtypes, strict=True):
        dtype: torch.dtype = getattr(torch, name)
        size = torch.Size(shape).numel() * dtype.itemsize
        found.append(mapped[offset : offset + size].view(dtype).reshape(tuple(shape)))
    return found


class Pieces:
    """Tells which tensors are pieces of constants: of these a result need not have the bytes."""

    def __init__(self, constants: Sequence[torch.Tensor]) -> None:
        self._known: dict[int, list[tuple[int, int, int]]] = {}
        for number, constant in enumerate(constants):
            if constant.is_contiguous() and constant.nbytes:
                start = constant.data_ptr()
                storage = constant.untyped_storage().data_ptr()
                self._known.setdefault(storage, []).append((start, start + constant.nbytes, number))

    def find(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """The number of the constant and the offset in it, in bytes; None if it is none."""
        if not tensor.is_contiguous() or not tensor.nbytes:
            return None
        begin = tensor.data_ptr()
        for start, end, number in self._known.get(tensor.untyped_storage().data_ptr(), ()):
            if start <= begin and begin + tensor.nbytes <= end:
                return number, begin - start
        return None
