"""Writes a .pte: lays out header, flatbuffer and segments, then streams the data from where it is.

Layout (ExecuTorch 1.5): root offset, "ET12", extended header "eh00", flatbuffer, segments aligned to 128 bytes.
Segment 0 holds all constants, 16-aligned; then initial state, blobs, named data. Equal data is stored once.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard

from delegatekit_api import FormatError, LoweringError
from delegatekit_api.flatbuffer import serialize

from . import schema
from .image import Data, PteImage

if TYPE_CHECKING:
    import torch

#: Segments start at multiples of this many bytes.
SEGMENT_ALIGNMENT = 128
#: Constants within their segment start at multiples of this many bytes.
CONSTANT_ALIGNMENT = 16
#: The extended header: magic, length, program size, segment base, segment data size.
HEADER = struct.Struct("<4sIQQQ")
HEADER_MAGIC = b"eh00"


def write(image: PteImage, path: str | Path) -> None:
    """Write the file: whole, or not at all (it replaces an old one only when it is complete)."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FormatError("the folder does not exist", where=str(path), hint=f"create {path.parent} first")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write_to(image, file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes a private file; a model is as readable as the user's umask says.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def to_bytes(image: PteImage) -> bytes:
    """The file as bytes."""
    buffer = io.BytesIO()
    write_to(image, buffer)
    return buffer.getvalue()


def write_to(image: PteImage, file: BinaryIO) -> None:
    """Write the file's bytes, front to back."""
    layout = _lay_out(image)
    flatbuffer = serialize(layout.program, schema.PTE_IDENTIFIER)
    program_size = len(flatbuffer) + HEADER.size
    base = _up(program_size, SEGMENT_ALIGNMENT)
    # The header goes between the root offset and what it counts from the start of the file.
    (root,) = struct.unpack_from("<I", flatbuffer)
    file.write(struct.pack("<I", root + HEADER.size) + flatbuffer[4:8])
    file.write(HEADER.pack(HEADER_MAGIC, HEADER.size, program_size, base, layout.size))
    file.write(memoryview(flatbuffer)[8:])
    position = program_size
    for piece in layout.pieces:
        file.write(b"\0" * (base + piece.offset - position))
        position = base + piece.offset
        for part in _parts(piece.data):
            file.write(part)
            position += part.nbytes
    file.write(b"\0" * (base + layout.size - position))


@dataclass(frozen=True)
class _Piece:
    """Data at an offset from the segment base."""

    offset: int
    data: Data


@dataclass(frozen=True)
class _Layout:
    program: schema.Program
    pieces: tuple[_Piece, ...]
    #: Bytes from the segment base to the end of the last segment.
    size: int


class _Segments:
    """Segments under construction: where each begins and what is written where."""

    def __init__(self) -> None:
        self.tables: list[schema.DataSegment] = []
        self.pieces: list[_Piece] = []
        self.end = 0

    def add(self, parts: Sequence[tuple[int, Data]], size: int, alignment: int = SEGMENT_ALIGNMENT) -> int:
        """A segment of `size` bytes with data at offsets within it; returns its number."""
        offset = _up(self.end, math.lcm(SEGMENT_ALIGNMENT, alignment))
        self.tables.append(schema.DataSegment(offset, size))
        self.pieces.extend(_Piece(offset + place, data) for place, data in parts)
        self.end = offset + size
        return len(self.tables) - 1


def _lay_out(image: PteImage) -> _Layout:
    store = _Contents()
    segments = _Segments()
    constants, constant_numbers = _subsegment(image.constants, segments, store)
    states, state_numbers = _subsegment(image.mutable_state, segments, None) if image.mutable_state else (None, [])
    blobs = _deduplicated(image.delegate_blobs, segments, store)
    named = _named_segments(image, segments, store)
    program = schema.Program(
        version=0,
        execution_plan=[_renumbered(plan, constant_numbers, state_numbers, blobs) for plan in image.plans],
        constant_buffer=[],
        backend_delegate_data=[],
        segments=segments.tables,
        constant_segment=constants,
        mutable_data_segments=[states] if states is not None else [],
        named_data=named,
    )
    return _Layout(program, tuple(segments.pieces), segments.end)


def _subsegment(
    items: Sequence[Data], segments: _Segments, store: _Contents | None
) -> tuple[schema.SubsegmentOffsets, list[int]]:
    """All items in one segment. Returns its table, and for each item its number, counted from 1."""
    offsets: list[int] = [0]
    numbers: list[int] = []
    parts: list[tuple[int, Data]] = []
    known: dict[Any, int] = {}
    end = 0
    for item in items:
        key = store.key(item) if store is not None else len(numbers)
        if key not in known:
            start = _up(end, CONSTANT_ALIGNMENT)
            parts.append((start, item))
            offsets.append(start)
            end = start + data_size(item)
            known[key] = len(offsets) - 1
        numbers.append(known[key])
    return schema.SubsegmentOffsets(segments.add(parts, end), offsets), numbers


def _deduplicated(items: Sequence[Data], segments: _Segments, store: _Contents) -> list[int]:
    known: dict[Any, int] = {}
    numbers = []
    for item in items:
        key = store.key(item)
        if key not in known:
            known[key] = segments.add([(0, item)], data_size(item))
        numbers.append(known[key])
    return numbers


def _named_segments(image: PteImage, segments: _Segments, store: _Contents) -> list[schema.NamedData]:
    found: dict[str, tuple[Any, int]] = {}
    by_content: dict[Any, int] = {}
    for named in image.named_data:
        if named.alignment < 1 or named.alignment & (named.alignment - 1):
            raise LoweringError(f"alignment {named.alignment} is not a power of two", where=f"named data {named.key}")
        content = store.key(named.data)
        if named.key in found:
            if found[named.key][0] != content:
                raise LoweringError(
                    "two different pieces of data have this key",
                    where=f"named data {named.key}",
                    hint="the backend must make its keys from the content, or from unique names",
                )
            continue
        if (content, named.alignment) not in by_content:
            number = segments.add([(0, named.data)], data_size(named.data), named.alignment)
            by_content[content, named.alignment] = number
        found[named.key] = (content, by_content[content, named.alignment])
    return [schema.NamedData(key, number) for key, (_, number) in found.items()]


def _renumbered(
    plan: schema.ExecutionPlan, constants: Sequence[int], states: Sequence[int], blobs: Sequence[int]
) -> schema.ExecutionPlan:
    """The plan with the numbers of the image replaced by those of the file; the plan itself is not changed."""
    values = [_renumbered_value(value, constants, states) for value in plan.values or ()]
    delegates = []
    for delegate in plan.delegates or ():
        place = delegate.processed
        if place is not None and place.location == schema.DataLocation.SEGMENT:
            place = schema.BackendDelegateDataReference(place.location, blobs[place.index])
        delegates.append(replace(delegate, processed=place))
    return replace(
        plan,
        values=None if plan.values is None else values,
        delegates=None if plan.delegates is None else delegates,
    )


def _renumbered_value(value: schema.EValue, constants: Sequence[int], states: Sequence[int]) -> schema.EValue:
    tensor = value.val
    if not isinstance(tensor, schema.Tensor) or not tensor.data_buffer_idx:
        return value
    numbers = constants if tensor.allocation_info is None else states
    return schema.EValue(replace(tensor, data_buffer_idx=numbers[tensor.data_buffer_idx - 1]))


class _Contents:
    """Tells whether two pieces of data hold the same bytes; hashes each storage once, and small data not at all."""

    def __init__(self) -> None:
        self._digests: dict[Any, bytes] = {}

    def key(self, data: Data) -> Any:
        """Equal for equal bytes."""
        size = data_size(data)
        if size <= 64:
            return (size, b"".join(bytes(part) for part in _parts(data)))
        identity = _identity(data)
        if identity not in self._digests:
            digest = hashlib.sha256()
            for part in _parts(data):
                digest.update(part)
            self._digests[identity] = digest.digest()
        return (size, self._digests[identity])


def _is_tensor(data: Data) -> TypeGuard[torch.Tensor]:
    return hasattr(data, "data_ptr")  # without importing torch for files that hold none


def _identity(data: Data) -> Any:
    if _is_tensor(data):
        return (data.data_ptr(), data.dtype, tuple(data.shape), tuple(data.stride()))
    return id(data)


def data_size(data: Data) -> int:
    """Number of bytes."""
    if _is_tensor(data):
        return int(data.numel() * data.element_size())
    if isinstance(data, bytes | bytearray):
        return len(data)
    if isinstance(data, memoryview):
        return data.nbytes
    return sum(data_size(part) for part in data)


def _parts(data: Data) -> Iterator[memoryview]:
    """The bytes, without a copy where the data is contiguous already."""
    if _is_tensor(data):
        import torch

        # A strided view is made contiguous here, one tensor at a time, and let go of behind the write.
        flat = data.detach().contiguous().reshape(-1)
        if flat.numel():
            array: Any = flat.view(torch.uint8).numpy()
            yield memoryview(array)
    elif isinstance(data, bytes | bytearray | memoryview):
        if len(data):
            yield memoryview(data).cast("B")
    else:
        for part in data:
            yield from _parts(part)


def _up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
