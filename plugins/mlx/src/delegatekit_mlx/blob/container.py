"""The container of a graph: a header, the flatbuffer of `schema`, and padding.

The header's fields are those of ExecuTorch's MLX backend (1.5): four zeros, the magic, and offset and size of a data
segment after the flatbuffer, which stays empty, since constants are named data of the program.
"""

from __future__ import annotations

import struct
from typing import Final

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb

from .schema import MLXGraph

WHERE: Final = "MLX blob"
MAGIC: Final = b"MLX0"
_HEADER: Final = struct.Struct("<4s4sQQ")
#: Alignment of the data segment, in bytes.
_ALIGNMENT: Final = 16


def wrap(graph: MLXGraph) -> bytes:
    """The blob of a graph."""
    body = fb.serialize(graph)
    body += bytes(-(_HEADER.size + len(body)) % _ALIGNMENT)
    return _HEADER.pack(bytes(4), MAGIC, _HEADER.size + len(body), 0) + body


def unwrap(blob: memoryview | bytes) -> MLXGraph:
    """The graph of a blob: its tables, whose content is not checked. Raises FormatError."""
    data = memoryview(blob).cast("B")
    if len(data) < _HEADER.size:
        raise FormatError(f"{len(data)} bytes are too few: the header has {_HEADER.size}", where=WHERE)
    zeros, magic, offset, size = _HEADER.unpack_from(data)
    if magic != MAGIC or any(zeros):
        raise FormatError(f"begins with {zeros + magic!r}, not with {bytes(4) + MAGIC!r}", where=WHERE)
    if not _HEADER.size <= offset <= len(data) or offset % _ALIGNMENT:
        raise FormatError(f"has a data segment at {offset} of {len(data)} bytes", where=WHERE)
    if size or offset != len(data):
        raise FormatError("has a data segment: constants are named data of the program", where=WHERE)
    return fb.parse(MLXGraph, data[_HEADER.size : offset])
