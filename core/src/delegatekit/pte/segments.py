"""Segments: the data after the flatbuffer of a .pte or .ptd, laid out, streamed, and located."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias, TypeGuard, Union

from delegatekit_api import FormatError
from delegatekit_toolkit.later import Later

if TYPE_CHECKING:
    import torch

#: Segments start at multiples of this many bytes.
SEGMENT_ALIGNMENT = 128

#: Bytes, a tensor (written from its own storage), what is made when it is written, or pieces one after the other.
Data: TypeAlias = Union[bytes, bytearray, memoryview, "torch.Tensor", Later, Sequence[bytes | bytearray | memoryview]]


class SegmentTable(Protocol):
    """A segment's entry in the flatbuffer; `offset` counts from the segment base."""

    offset: int
    size: int


@dataclass(frozen=True)
class Segment:
    """A segment that was laid out. Offset, counted from the segment base, and size in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class _Piece:
    """Data at an offset from the segment base."""

    offset: int
    data: Data


class Segments:
    """Segments under construction: the offset of each, and the data at each offset."""

    def __init__(self) -> None:
        self.found: list[Segment] = []
        self._pieces: list[_Piece] = []
        #: Bytes from the segment base to the end of the last segment.
        self.size = 0

    def add(self, parts: Sequence[tuple[int, Data]], size: int, alignment: int = 1) -> int:
        """A segment of `size` bytes with data at offsets within it; returns its number."""
        offset = round_up(self.size, math.lcm(SEGMENT_ALIGNMENT, alignment))
        self.found.append(Segment(offset, size))
        self._pieces.extend(_Piece(offset + place, data) for place, data in parts)
        self.size = offset + size
        return len(self.found) - 1

    def write(self, file: BinaryIO, position: int, base: int) -> None:
        """Write the data from `position`, the current end of the file, on; the first segment goes to `base`."""
        for piece in self._pieces:
            file.write(b"\0" * (base + piece.offset - position))
            position = base + piece.offset
            for part in _parts(piece.data):
                file.write(part)
                position += part.nbytes
        file.write(b"\0" * (base + self.size - position))


def locate(view: memoryview, base: int, data_size: int | None, segments: Sequence[SegmentTable]) -> list[memoryview]:
    """The segments' bytes in an opened file. Raises FormatError for one that is not in it.

    `data_size` is the header's size of all segments together, None if it has none.
    """
    found = []
    for index, segment in enumerate(segments):
        start, end = base + segment.offset, base + segment.offset + segment.size
        if end > len(view):
            raise FormatError(f"bytes {start} to {end} are not in the file of {len(view)}", where=f"segment {index}")
        if data_size is not None and segment.offset + segment.size > data_size:
            raise FormatError(
                f"ends at byte {segment.offset + segment.size} of the segments, which the header says have {data_size}",
                where=f"segment {index}",
            )
        found.append(view[start:end])
    return found


def contents(items: Sequence[Data]) -> list[Hashable]:
    """A key for each item, equal where the bytes are equal. Only items that share their size are hashed, each once."""
    sizes = Counter(data_size(item) for item in items)
    digests: dict[Hashable, bytes] = {}
    keys: list[Hashable] = []
    for item in items:
        size, identity = data_size(item), _identity(item)
        if sizes[size] == 1:
            keys.append(size)
            continue
        if identity not in digests:
            digests[identity] = digest(item)
        keys.append((size, digests[identity]))
    return keys


def digest(data: Data) -> bytes:
    """SHA-256 of the bytes."""
    if isinstance(data, Later):
        return data.digest
    found = hashlib.sha256()
    for part in _parts(data):
        found.update(part)
    return found.digest()


def data_size(data: Data) -> int:
    """Number of bytes."""
    if _is_tensor(data):
        return int(data.numel() * data.element_size())
    if isinstance(data, bytes | bytearray):
        return len(data)
    if isinstance(data, memoryview | Later):
        return data.nbytes
    return sum(data_size(part) for part in data)


def round_up(value: int, alignment: int) -> int:
    """The next multiple of `alignment`."""
    return -(-value // alignment) * alignment


def _is_tensor(data: Data) -> TypeGuard[torch.Tensor]:
    return hasattr(data, "data_ptr")  # without importing torch for files that hold none


def _identity(data: Data) -> Hashable:
    if _is_tensor(data):
        return (data.data_ptr(), data.dtype, tuple(data.shape), tuple(data.stride()))
    return id(data)


def _parts(data: Data) -> Iterator[memoryview]:
    """The bytes, without a copy if the data is contiguous already."""
    if _is_tensor(data):
        import torch

        # A strided view is made contiguous here, one tensor at a time, and freed after the write.
        # (One element is contiguous with any stride: reshape would keep that.)
        flat = data.detach().contiguous().as_strided((data.numel(),), (1,))
        if flat.numel():
            array: Any = flat.view(torch.uint8).numpy()
            yield memoryview(array)
    elif isinstance(data, bytes | bytearray | memoryview):
        if len(data):
            yield memoryview(data).cast("B")
    elif isinstance(data, Later):
        yield from _parts(data.read())
    else:
        for part in data:
            yield from _parts(part)
