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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeGuard

from delegatekit_api import FormatError, LoweringError, NamedData
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
    segments = _Segments()
    constants, constant_numbers = _subsegment(image.constants, segments, _contents(image.constants))
    states, state_numbers = None, [0] * len(image.mutable_state)
    if image.mutable_state:
        # Buffers with equal initial values stay apart: each goes its own way.
        states, state_numbers = _subsegment(image.mutable_state, segments, list(range(len(image.mutable_state))))
    blobs = _separate(image.delegate_blobs, segments)
    named = _named_segments(image.named_data, segments)
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
    items: Sequence[Data], segments: _Segments, contents: Sequence[Any]
) -> tuple[schema.SubsegmentOffsets, list[int]]:
    """All items in one segment. Returns its table, and for each item its number, counted from 1."""
    offsets: list[int] = [0]
    parts: list[tuple[int, Data]] = []
    known: dict[Any, int] = {}
    end = 0
    for item, content in zip(items, contents, strict=True):
        if content not in known:
            start = _up(end, CONSTANT_ALIGNMENT)
            parts.append((start, item))
            offsets.append(start)
            end = start + data_size(item)
            known[content] = len(offsets) - 1
    numbers = [known[content] for content in contents]
    return schema.SubsegmentOffsets(segments.add(parts, end), offsets), numbers


def _separate(items: Sequence[Data], segments: _Segments) -> list[int]:
    """A segment for each item, equal ones sharing one."""
    known: dict[Any, int] = {}
    contents = _contents(items)
    for item, content in zip(items, contents, strict=True):
        if content not in known:
            known[content] = segments.add([(0, item)], data_size(item))
    return [known[content] for content in contents]


def _named_segments(items: Sequence[NamedData], segments: _Segments) -> list[schema.NamedData]:
    """A segment for each key. What a key stands for is compared only where it comes twice."""
    by_key: dict[str, list[NamedData]] = {}
    for named in items:
        if named.alignment < 1 or named.alignment & (named.alignment - 1):
            raise LoweringError(f"alignment {named.alignment} is not a power of two", where=f"named data {named.key}")
        by_key.setdefault(named.key, []).append(named)
    tables = []
    for key, found in by_key.items():
        if len(set(_contents([named.data for named in found]))) > 1:
            raise LoweringError(
                "two different pieces of data have this key",
                where=f"named data {key}",
                hint="the backend must make its keys from the content, or from unique names",
            )
        data, alignment = found[0].data, max(named.alignment for named in found)
        tables.append(schema.NamedData(key, segments.add([(0, data)], data_size(data), alignment)))
    return tables


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


def _contents(items: Sequence[Data]) -> list[Any]:
    """A key for each item, equal where the bytes are equal. Only items that share their size are hashed, each once."""
    sizes = Counter(data_size(item) for item in items)
    digests: dict[Any, bytes] = {}
    keys: list[Any] = []
    for item in items:
        size, identity = data_size(item), _identity(item)
        if sizes[size] == 1:
            keys.append(size)
            continue
        if identity not in digests:
            digest = hashlib.sha256()
            for part in _parts(item):
                digest.update(part)
            digests[identity] = digest.digest()
        keys.append((size, digests[identity]))
    return keys


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
