"""Constants in a file that another process maps into its memory, and pieces of constants that results refer to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from delegatekit_toolkit.content import elements, storage_key
from delegatekit_toolkit.dtypes import dtype_name

from ..edge.constants import Constants

#: The alignment of constants in the file, in bytes.
_ALIGNMENT: Final = 64


@dataclass(frozen=True)
class Place:
    """The offset of a constant in the file, in bytes, its shape and the name of its dtype."""

    offset: int
    shape: Sequence[int]
    dtype: str


def write_constants(path: Path, programs: Iterable[Constants[int]]) -> list[Place]:
    """Write the constants' elements in row-major order, equal addresses once."""
    places: dict[object, int] = {}
    found: list[Place] = []
    with path.open("wb") as file:
        for constants in programs:
            for place, constant in constants.items():
                # A freed tensor's address may be reused by the next one.
                key = storage_key(constant) if constants.is_held(place) else len(found)
                if key not in places:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    places[key] = file.tell()
                    file.write(elements(constant).numpy().data)
                found.append(Place(places[key], list(constant.shape), dtype_name(constant.dtype)))
        file.write(bytes(_ALIGNMENT))  # an empty file cannot be mapped
    return found


def map_constants(path: Path, places: Iterable[Place]) -> list[torch.Tensor]:
    """The constants of such a file: tensors on its pages, mapped copy-on-write."""
    mapped = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
    found = []
    for place in places:
        dtype: torch.dtype = getattr(torch, place.dtype)
        size = torch.Size(place.shape).numel() * dtype.itemsize
        found.append(mapped[place.offset : place.offset + size].view(dtype).reshape(tuple(place.shape)))
    return found


class Pieces:
    """Finds tensors that are pieces of constants: a result need not contain their bytes."""

    def __init__(self, constants: Constants[int]) -> None:
        self._known: dict[int, list[tuple[int, int, int]]] = {}
        #: References to the pieces: they stay in memory as long as this does.
        self._tensors = dict(constants.known())
        for number, constant in self._tensors.items():
            if constant.is_contiguous() and constant.nbytes:
                start = constant.data_ptr()
                storage = constant.untyped_storage().data_ptr()
                self._known.setdefault(storage, []).append((start, start + constant.nbytes, number))

    def find(self, tensor: torch.Tensor) -> tuple[int, int] | None:
        """The index of the constant and the offset in it, in bytes; None if it is no piece."""
        if not tensor.is_contiguous() or not tensor.nbytes:
            return None
        begin = tensor.data_ptr()
        for start, end, number in self._known.get(tensor.untyped_storage().data_ptr(), ()):
            if start <= begin and begin + tensor.nbytes <= end:
                return number, begin - start
        return None
