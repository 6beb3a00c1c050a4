"""The blob: a header of ExecuTorch's QNN delegate before the context binary.

offset  bytes  what (little endian)
0       4      magic
4       8      signature: delegates with equal ones share a context there; from the context's content
12      8      length of the context binary in bytes
20      4      "DKQ1": what follows until the end of the header is ours; the runtime on the device ignores it
24      4      CRC-32 of the header without this field
28      32     version of the library that compiled it, in ASCII, filled up with zeros
60      4      number of methods whose borders follow; 0 if they do not fit
64      192    the border of each: a CRC-32 of its name, inputs and outputs; zeros until 256, where the context begins
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delegatekit_api import FormatError

_HEADER: Final = struct.Struct("<IQQ")
_OURS: Final = struct.Struct("<4sI32sI")
_MAGIC: Final = 0x5678ABCD
_MARK: Final = b"DKQ1"
HEADER_SIZE: Final = 256
#: The runtime reads contexts in place from addresses with this alignment.
ALIGNMENT: Final = 256
_BORDERS: Final = _HEADER.size + _OURS.size
_MOST_BORDERS: Final = (HEADER_SIZE - _BORDERS) // 4
_WHERE: Final = "QNN blob"

#: The tensors at a border: the name of each one's type in torch, and its shape.
Tensors: TypeAlias = "Sequence[tuple[str, Sequence[int]]]"


@dataclass(frozen=True)
class Blob:
    """A context binary, and its metadata. For blobs written by others that is nothing: "" and no borders."""

    context: bytes | memoryview
    #: The version of the library that compiled it.
    version: str
    #: The methods that it has graphs of (`border`).
    borders: tuple[int, ...] = ()


def border(method: str, inputs: Tensors, outputs: Tensors) -> int:
    """A hash of a method's inputs and outputs: the library does not check the memory that it is given."""
    sides = [[(dtype, tuple(shape) or (1,)) for dtype, shape in side] for side in (inputs, outputs)]
    return zlib.crc32(repr((method, *sides)).encode())


def write_blob(blob: Blob) -> bytes:
    """The delegate's blob."""
    start = _HEADER.pack(_MAGIC, _signature(blob.context), len(blob.context))
    borders = blob.borders if len(blob.borders) <= _MOST_BORDERS else ()
    rest = struct.pack(f"<{len(borders)}I", *borders).ljust(HEADER_SIZE - _BORDERS, b"\0")
    version = blob.version.encode("ascii")
    unsealed = start + _OURS.pack(_MARK, 0, version, len(borders)) + rest
    header = start + _OURS.pack(_MARK, zlib.crc32(unsealed), version, len(borders)) + rest
    return b"".join((header, blob.context))


def read_blob(data: bytes | memoryview) -> Blob:
    """The content of a blob, ours or stock's. Raises FormatError for detectable damage."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        raise FormatError(f"{len(view)} bytes are too few: the header has {HEADER_SIZE}", where=_WHERE)
    magic, signature, length = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise FormatError(f"begins with {magic:#x}, not with {_MAGIC:#x}", where=_WHERE)
    context = view[HEADER_SIZE:]
    if length != len(context) or not length:
        raise FormatError(f"has {len(context)} bytes of context instead of {length}", where=_WHERE)
    mark, checksum, version, count = _OURS.unpack_from(view, _HEADER.size)
    if mark != _MARK:
        if any(view[_HEADER.size : HEADER_SIZE]):
            raise FormatError("is damaged: its header is neither ours nor the vendor's", where=_WHERE)
        return Blob(context, "")
    header = bytearray(view[:HEADER_SIZE])
    header[_HEADER.size + 4 : _HEADER.size + 8] = bytes(4)
    if zlib.crc32(header) != checksum or signature != _signature(context) or count > _MOST_BORDERS:
        raise FormatError("is damaged: the checksum is wrong", where=_WHERE)
    return Blob(
        context,
        version.rstrip(b"\0").decode("ascii", errors="replace"),
        struct.unpack_from(f"<{count}I", view, _BORDERS),
    )


def _signature(context: bytes | memoryview) -> int:
    """The runtime compares signatures as signed numbers: the highest bit stays 0."""
    return int.from_bytes(hashlib.sha256(context).digest()[:8], "little") >> 1


def with_signature(program: bytes, blob: memoryview, signature: int) -> bytes:
    """A program's bytes with another signature in the one blob that it has."""
    start = program.index(bytes(blob[:HEADER_SIZE]))
    magic, _, length = _HEADER.unpack_from(program, start)
    return b"".join((program[:start], _HEADER.pack(magic, signature, length), program[start + _HEADER.size :]))
