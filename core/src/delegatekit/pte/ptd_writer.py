"""Writes a .ptd: the weights and named data of a program outside its .pte, streamed from their storage.

Layout (ExecuTorch 1.5): root offset, "FT01", header "FH01", flatbuffer, segments aligned to 128 bytes, one for each
distinct content: keys of equal data share a segment.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Hashable
from pathlib import Path
from typing import BinaryIO

from delegatekit_api import LoweringError
from delegatekit_toolkit.flatbuffer import serialize

from ..files import write_files
from . import ptd_schema
from .image import Datum, PtdImage
from .segments import SEGMENT_ALIGNMENT, Segments, data_size, round_up

#: The header: magic, length, flatbuffer offset and size, segment base, segment data size.
PTD_HEADER = struct.Struct("<4sIQQQQ")
PTD_HEADER_MAGIC = b"FH01"
#: With padding, so that the flatbuffer after it keeps its alignment.
PTD_HEADER_SPACE = round_up(PTD_HEADER.size, 16)


def write_ptd(image: PtdImage, path: str | Path) -> None:
    """Write the file: whole, or not at all (it replaces an old one only when it is complete)."""
    write_files({Path(path): lambda file: write_ptd_to(image, file)})


def ptd_to_bytes(image: PtdImage) -> bytes:
    """The file as bytes."""
    buffer = io.BytesIO()
    write_ptd_to(image, buffer)
    return buffer.getvalue()


def write_ptd_to(image: PtdImage, file: BinaryIO) -> None:
    """Write the file's bytes, front to back. Raises LoweringError for a key with two meanings."""
    table, segments = _lay_out(image)
    flatbuffer = serialize(table, ptd_schema.PTD_IDENTIFIER)
    size = len(flatbuffer) + PTD_HEADER_SPACE
    base = round_up(size, SEGMENT_ALIGNMENT)
    # The header goes between the root offset and the data that it counts from the start of the file.
    (root,) = struct.unpack_from("<I", flatbuffer)
    header = PTD_HEADER.pack(PTD_HEADER_MAGIC, PTD_HEADER.size, PTD_HEADER_SPACE, len(flatbuffer), base, segments.size)
    file.write(struct.pack("<I", root + PTD_HEADER_SPACE) + flatbuffer[4:8])
    file.write(header.ljust(PTD_HEADER_SPACE, b"\0"))
    file.write(memoryview(flatbuffer)[8:])
    segments.write(file, size, base)


def _lay_out(image: PtdImage) -> tuple[ptd_schema.FlatTensor, Segments]:
    alignments: dict[Hashable, int] = {}
    for datum, content in zip(image.data, image.contents, strict=True):
        _check(datum)
        alignments[content] = max(datum.alignment, alignments.get(content, 1))
    segments = Segments()
    numbers: dict[Hashable, int] = {}
    named: dict[str, tuple[Hashable, ptd_schema.NamedData]] = {}
    for datum, content in zip(image.data, image.contents, strict=True):
        if content not in numbers:
            numbers[content] = segments.add([(0, datum.data)], data_size(datum.data), alignments[content])
        table = ptd_schema.NamedData(datum.key, numbers[content], datum.layout)
        if named.setdefault(datum.key, (content, table)) != (content, table):
            raise LoweringError(
                "two different pieces of data have this key",
                where=f"key {datum.key}",
                hint="rename one of the parameters, or keep one of them in the .pte",
            )
    tables = [ptd_schema.DataSegment(segment.offset, segment.size) for segment in segments.found]
    return ptd_schema.FlatTensor(
        version=0, segments=tables, named_data=[table for _, table in named.values()]
    ), segments


def _check(datum: Datum) -> None:
    where = f"key {datum.key}"
    if not datum.key or "\0" in datum.key:
        raise LoweringError("is not a key: it must have characters, and no zero byte", where=where)
    if datum.alignment < 1 or datum.alignment & (datum.alignment - 1):
        raise LoweringError(f"alignment {datum.alignment} is not a power of two", where=where)
    if datum.layout is not None and datum.layout.nbytes != data_size(datum.data):
        raise LoweringError(f"has {data_size(datum.data)} bytes, which is not {datum.layout}", where=where)
