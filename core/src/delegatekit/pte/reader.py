"""Opens a .pte: header, flatbuffer and segments, bounds checked; what it means is checked by `validate`."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from delegatekit_api import FormatError
from delegatekit_api.flatbuffer import parse

from . import schema
from .writer import HEADER, HEADER_MAGIC

#: The runtime refuses shorter files.
_SMALLEST = 64


@dataclass(frozen=True)
class Header:
    """The extended header. Offsets and sizes in bytes."""

    length: int
    program_size: int
    segment_base: int
    segment_data_size: int


@dataclass(frozen=True)
class PteFile:
    """An opened file. Views stay valid as long as this object or one of them is alive."""

    program: schema.Program
    #: None if the file has no segments.
    header: Header | None
    segments: tuple[memoryview, ...]
    size: int

    def constant(self, index: int, size: int) -> memoryview:
        """`size` bytes of the constant with this data_buffer_idx."""
        return self._subsegment(self.program.constant_segment, index, size, "constant")

    def mutable_state(self, index: int, size: int) -> memoryview:
        """`size` bytes of the initial value with this data_buffer_idx."""
        tables = self.program.mutable_data_segments or []
        return self._subsegment(tables[0] if tables else None, index, size, "initial state")

    def delegate_blob(self, delegate: schema.BackendDelegate) -> memoryview:
        """A delegate's blob, inline or in a segment."""
        where = f"delegate {delegate.id}"
        place = delegate.processed
        if place is None:
            raise FormatError("has no blob", where=where)
        if place.location == schema.DataLocation.SEGMENT:
            return self.segment(place.index, where)
        inline = self.program.backend_delegate_data or []
        if place.location != schema.DataLocation.INLINE:
            raise FormatError(f"its blob is at the unknown location {place.location}", where=where)
        if place.index >= len(inline):
            raise FormatError(f"its blob is inline data {place.index} of {len(inline)}", where=where)
        return memoryview(inline[place.index].data or b"")

    def segment(self, index: int, where: str) -> memoryview:
        """A segment's bytes."""
        if index >= len(self.segments):
            raise FormatError(f"refers to segment {index} of {len(self.segments)}", where=where)
        return self.segments[index]

    @cached_property
    def named_data(self) -> Mapping[str, memoryview]:
        """Key -> bytes."""
        found: dict[str, memoryview] = {}
        for index, named in enumerate(self.program.named_data or ()):
            if named.key is None:
                raise FormatError("has no key", where=f"named data {index}")
            found[named.key] = self.segment(named.segment_index, f"named data {named.key}")
        return found

    def _subsegment(self, table: schema.SubsegmentOffsets | None, index: int, size: int, what: str) -> memoryview:
        where = f"{what} {index}"
        offsets = (table.offsets if table is not None else None) or []
        if table is None or index >= len(offsets):
            raise FormatError(f"does not exist: there are {max(0, len(offsets) - 1)}", where=where)
        segment = self.segment(table.segment_index, where)
        start = offsets[index]
        if start + size > len(segment):
            raise FormatError(f"bytes {start} to {start + size} are not in its segment of {len(segment)}", where=where)
        return segment[start : start + size]


def read(source: str | Path | bytes | bytearray | memoryview) -> PteFile:
    """Open a file (mapped, not read) or bytes. Raises FormatError for anything that is not a whole .pte."""
    view = _view(source)
    if len(view) < _SMALLEST:
        raise FormatError(f"the file has {len(view)} bytes, too few for a .pte", hint="it was cut off, or is none")
    if bytes(view[4:8]) != schema.PTE_IDENTIFIER:
        raise FormatError(f"the file starts with {bytes(view[4:8])!r}, not 'ET12'", where="offset 4", hint="not a .pte")
    header = _header(view)
    end = header.program_size if header is not None else len(view)
    program = parse(schema.Program, view[:end], (schema.PTE_IDENTIFIER,))
    return PteFile(program, header, _segments(view, header, program), len(view))


def _view(source: str | Path | bytes | bytearray | memoryview) -> memoryview:
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source).cast("B")
    path = Path(source)
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise FormatError("the file is empty", where=str(path))
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", where=str(path)) from error


def _header(view: memoryview) -> Header | None:
    if bytes(view[8:12]) != HEADER_MAGIC:
        return None
    _, length, program_size, base, data_size = HEADER.unpack_from(view, 8)
    if length < 24:
        raise FormatError(f"the extended header is {length} bytes long, not 24 or more", where="offset 12")
    if length < HEADER.size:
        data_size = 0  # the short form has no such field
    header = Header(length, program_size, base, data_size)
    if not 8 + length <= program_size <= len(view):
        raise FormatError(f"the program has {program_size} bytes in a file of {len(view)}", where="offset 16")
    if base and (base < program_size or base > len(view)):
        raise FormatError(f"the segments start at {base}, inside the program or behind the file", where="offset 24")
    if base + data_size > len(view):
        raise FormatError(
            f"the segments end at {base + data_size}, the file at {len(view)}", where="offset 32", hint="it was cut off"
        )
    return header


def _segments(view: memoryview, header: Header | None, program: schema.Program) -> tuple[memoryview, ...]:
    found = []
    for index, segment in enumerate(program.segments or ()):
        where = f"segment {index}"
        if segment.size and (header is None or not header.segment_base):
            raise FormatError(
                "the file has data segments, but its extended header is missing or does not say where they start",
                where=where,
                hint="the runtime would compute with wrong numbers",
            )
        base = header.segment_base if header is not None else 0
        start, end = base + segment.offset, base + segment.offset + segment.size
        if end > len(view):
            raise FormatError(f"bytes {start} to {end} are not in the file of {len(view)}", where=where)
        found.append(view[start:end])
    return tuple(found)
