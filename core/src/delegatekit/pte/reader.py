"""Opens a .pte: header, flatbuffer and segments, bounds checked; the content is checked by `validate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from delegatekit_api import FormatError
from delegatekit_toolkit.flatbuffer import parse

from ..files import Source, open_view
from . import schema
from .bundle import bundled_program, is_bundle
from .ptd_reader import StoredData, read_data_files
from .ptd_schema import TensorLayout
from .segments import locate
from .writer import HEADER, HEADER_MAGIC

#: The runtime refuses shorter files.
_SMALLEST = 64
#: The hint for missing data.
GIVE_DATA = "put the .ptd files written with it beside it, or give them: `run --data FILE`, load(path, data=[...])"
_OTHER_FILE = "the data file belongs to another program"


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
    #: Key -> the data in the data files opened with this file.
    external: Mapping[str, StoredData] = field(default_factory=dict)

    def with_data(self, sources: Source | Sequence[Source], *, copy: bool = False) -> PteFile:
        """This file together with its data files (paths, which are mapped, or bytes; with `copy` read into memory).

        Raises FormatError for a faulty data file, and for a key with different data among them or here.
        """
        external = read_data_files(sources, copy=copy)
        for key in external.keys() & self.named_data.keys():
            if external[key].data != self.named_data[key]:
                raise FormatError(f"is in {external[key].file} and in the .pte, with different content", where=key)
        return replace(self, external=external)

    def external_tensor(self, tensor: schema.Tensor) -> memoryview:
        """The bytes of a tensor that lives outside the .pte.

        Raises FormatError, with the key, if no data file has it or if it differs there.
        """
        key = external_key(tensor)
        wanted = TensorLayout(tensor.scalar_type, tensor.sizes, tensor.dim_order)
        found = self.external.get(key)
        if found is None:
            files = ", ".join(sorted({stored.file for stored in self.external.values()}))
            raise FormatError(
                f"its data ({wanted}) is outside the .pte, and "
                + (f"not in {files}" if files else "no data file is given that has it"),
                where=f"tensor {key}",
                hint=GIVE_DATA,
            )
        if found.layout is None:
            raise FormatError(f"is in {found.file}, but not as a tensor", where=f"tensor {key}", hint=_OTHER_FILE)
        if found.layout != wanted:
            raise FormatError(
                f"is {wanted} in the .pte, but {found.layout} in {found.file}", where=f"tensor {key}", hint=_OTHER_FILE
            )
        return found.data

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
        """Key -> bytes, of this file and of the data files."""
        found: dict[str, memoryview] = {key: stored.data for key, stored in self.external.items()}
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


def read(source: Source, *, copy: bool = False) -> PteFile:
    """Open a file (mapped, or with `copy` read into memory) or bytes; of a bundle (.bpte), the program in it.

    Raises FormatError for anything that is not a whole .pte.
    """
    view = open_view(source, copy=copy)
    with naming(source):
        return _read(bundled_program(view) if is_bundle(view) else view)


def external_key(tensor: schema.Tensor) -> str:
    """The key of a tensor that lives outside the .pte."""
    return str(tensor.extra_tensor_info.fully_qualified_name if tensor.extra_tensor_info is not None else None)


@contextmanager
def naming(source: Source) -> Iterator[None]:
    """Put the path of a file, if it has one, before the place that a FormatError names."""
    try:
        yield
    except FormatError as error:
        if not isinstance(source, str | Path) or (error.where or "").startswith(str(source)):
            raise
        where = f"{source}, {error.where}" if error.where else str(source)
        raise type(error)(error.what, where=where, hint=error.hint) from error


def _read(view: memoryview) -> PteFile:
    if len(view) < _SMALLEST:
        raise FormatError(
            f"the file has {len(view)} bytes, too few for a .pte", hint="it was cut off, or is not a .pte"
        )
    if bytes(view[4:8]) != schema.PTE_IDENTIFIER:
        raise FormatError(f"the file starts with {bytes(view[4:8])!r}, not 'ET12'", where="offset 4", hint="not a .pte")
    header = _header(view)
    end = header.program_size if header is not None else len(view)
    program = parse(schema.Program, view[:end], (schema.PTE_IDENTIFIER,))
    return PteFile(program, header, _segments(view, header, program), len(view))


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
        raise FormatError(
            f"the segments start at {base}, inside the program or after the end of the file", where="offset 24"
        )
    if base + data_size > len(view):
        raise FormatError(
            f"the segments end at {base + data_size}, the file at {len(view)}", where="offset 32", hint="it was cut off"
        )
    return header


def _segments(view: memoryview, header: Header | None, program: schema.Program) -> tuple[memoryview, ...]:
    tables = program.segments or []
    for index, segment in enumerate(tables):
        if segment.size and (header is None or not header.segment_base):
            raise FormatError(
                "the file has data segments, but its extended header is missing or does not say where they start",
                where=f"segment {index}",
                hint="the runtime would compute with wrong numbers",
            )
    if header is None:
        return tuple(locate(view, 0, None, tables))
    return tuple(locate(view, header.segment_base, header.segment_data_size or None, tables))
