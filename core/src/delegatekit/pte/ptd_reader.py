"""Opens a .ptd: header, flatbuffer, segments and keys, everything checked; and several of them as one set of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from delegatekit_api import FormatError
from delegatekit_toolkit.flatbuffer import parse

from ..files import Source, open_view
from . import ptd_schema
from .ptd_writer import PTD_HEADER, PTD_HEADER_MAGIC
from .schema import layout_fault
from .segments import locate

#: The runtime refuses shorter files.
_SMALLEST = 64
_DAMAGED = "the file is damaged, or was written by a faulty tool"


@dataclass(frozen=True)
class PtdHeader:
    """The header. Offsets and sizes in bytes."""

    length: int
    flatbuffer_offset: int
    flatbuffer_size: int
    segment_base: int
    segment_data_size: int


@dataclass(frozen=True)
class StoredData:
    """The data under a key of a data file. `layout` is None for data that is no tensor; `file` names the data file."""

    data: memoryview
    layout: ptd_schema.TensorLayout | None
    file: str


@dataclass(frozen=True)
class PtdFile(Mapping[str, StoredData]):
    """An opened file: key -> data. Views stay valid as long as this object or one of them is alive."""

    name: str
    table: ptd_schema.FlatTensor
    header: PtdHeader
    segments: tuple[memoryview, ...]
    size: int
    stored: Mapping[str, StoredData]

    def __getitem__(self, key: str) -> StoredData:
        return self.stored[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def read_ptd(source: Source, name: str = "", *, copy: bool = False) -> PtdFile:
    """Open a data file (mapped, or with `copy` read into memory) or its bytes.

    Raises FormatError, which names the file `name` (by default its path), for anything that is not a whole .ptd.
    """
    name = name or (str(source) if isinstance(source, str | Path) else "data file")
    view = open_view(source, copy=copy)
    try:
        return _read(view, name)
    except FormatError as error:
        where = name if error.where is None else f"{name}, {error.where}"
        raise FormatError(error.what, where=where, hint=error.hint) from None


def read_data_files(sources: Source | Sequence[Source], *, copy: bool = False) -> dict[str, StoredData]:
    """Open one or several data files as one set of keys.

    A key may be in more than one of them if data and layout are the same; else FormatError.
    """
    several = [sources] if isinstance(sources, str | Path | bytes | bytearray | memoryview) else list(sources)
    found: dict[str, StoredData] = {}
    for index, source in enumerate(several):
        name = "" if isinstance(source, str | Path) else f"data file {index}"
        for key, stored in read_ptd(source, name, copy=copy).items():
            known = found.setdefault(key, stored)
            # Data is compared only across files: a comparison reads it all.
            if known is not stored and (known.layout != stored.layout or known.data != stored.data):
                raise FormatError(
                    f"is in {known.file} and in {stored.file}, with different content",
                    where=f"key {key}",
                    hint="give only the data files that belong to this program",
                )
    return found


def _read(view: memoryview, name: str) -> PtdFile:
    if len(view) < _SMALLEST:
        raise FormatError(
            f"the file has {len(view)} bytes, too few for a .ptd", hint="it was cut off, or is not a .ptd"
        )
    if bytes(view[4:8]) != ptd_schema.PTD_IDENTIFIER:
        raise FormatError(f"the file starts with {bytes(view[4:8])!r}, not 'FT01'", where="offset 4", hint="not a .ptd")
    header = _header(view)
    end = header.flatbuffer_offset + header.flatbuffer_size
    table = parse(ptd_schema.FlatTensor, view[:end], (ptd_schema.PTD_IDENTIFIER,))
    if table.version != 0:
        raise FormatError(f"the file has version {table.version}, this reader knows 0", hint="upgrade delegatekit")
    if table.segments is None or table.named_data is None:
        raise FormatError("has no segments or no keys", hint=_DAMAGED)
    segments = tuple(locate(view, header.segment_base, header.segment_data_size, table.segments))
    stored: dict[str, StoredData] = {}
    for index, named in enumerate(table.named_data):
        key = named.key
        if not key:
            raise FormatError("has no name", where=f"key {index}", hint=_DAMAGED)
        if key in stored:
            raise FormatError("appears twice", where=f"key {key}", hint=_DAMAGED)
        if named.segment_index >= len(segments):
            raise FormatError(f"refers to segment {named.segment_index} of {len(segments)}", where=f"key {key}")
        data = segments[named.segment_index]
        if named.tensor_layout is not None:
            _check_layout(named.tensor_layout, len(data), f"key {key}")
        stored[key] = StoredData(data, named.tensor_layout, name)
    return PtdFile(name, table, header, segments, len(view), stored)


def _header(view: memoryview) -> PtdHeader:
    magic, length, offset, size, base, data_size = PTD_HEADER.unpack_from(view, 8)
    if magic != PTD_HEADER_MAGIC:
        raise FormatError(f"the header starts with {magic!r}, not 'FH01'", where="offset 8", hint=_DAMAGED)
    if length < PTD_HEADER.size:
        raise FormatError(f"the header is {length} bytes long, not {PTD_HEADER.size} or more", where="offset 12")
    if offset < length or offset + size > len(view):
        raise FormatError(
            f"the tables are {size} bytes at {offset}, not after the header and within the file of {len(view)}",
            where="offset 16",
        )
    if base and not offset + size <= base <= len(view):
        raise FormatError(
            f"the segments start at {base}, inside the tables or after the end of the file", where="offset 32"
        )
    if not base and data_size:
        raise FormatError("the header does not say where the segments start", where="offset 32", hint=_DAMAGED)
    if base + data_size > len(view):
        raise FormatError(
            f"the segments end at {base + data_size}, the file at {len(view)}", where="offset 40", hint="it was cut off"
        )
    return PtdHeader(length, offset, size, base, data_size)


def _check_layout(layout: ptd_schema.TensorLayout, size: int, where: str) -> None:
    fault = layout_fault(layout.scalar_type, layout.sizes, layout.dim_order)
    if fault is not None:
        raise FormatError(fault, where=where, hint=_DAMAGED)
    if layout.nbytes != size:
        raise FormatError(f"has {size} bytes, but {layout} has {layout.nbytes}", where=where, hint=_DAMAGED)
