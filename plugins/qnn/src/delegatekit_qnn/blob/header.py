"""The blob: a header of ExecuTorch's QNN delegate in front of the context binary.

offset  bytes  what (little endian)
0       4      magic
4       8      signature: delegates with equal ones share a context in the runtime
12      8      length of the context binary in bytes
20      4      "DKQ1": what follows until the end of the header is ours; the runtime on the device ignores it
24      4      CRC-32 of the header without this field, and of the context binary
28      32     version of the library that compiled it, in ASCII, filled up with zeros
60             zeros until 256, where the context binary begins
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from dataclasses import dataclass
from typing import Final

from delegatekit_api import FormatError

_HEADER: Final = struct.Struct("<IQQ")
_OURS: Final = struct.Struct("<4sI32s")
_MAGIC: Final = 0x5678ABCD
_MARK: Final = b"DKQ1"
HEADER_SIZE: Final = 256
#: The runtime reads contexts in place from such addresses.
ALIGNMENT: Final = 256
_WHERE: Final = "QNN blob"


@dataclass(frozen=True)
class Blob:
    """A context binary, and the version of the library that compiled it; "" where others wrote the blob."""

    context: bytes | memoryview
    version: str


def write_blob(blob: Blob) -> bytes:
    """The delegate's blob. Its signature follows from its content."""
    digest = hashlib.sha256(blob.context).digest()
    # The runtime compares signatures as signed numbers: the highest bit stays 0.
    signature = int.from_bytes(digest[:8], "little") >> 1
    version = blob.version.encode("ascii")
    start = _HEADER.pack(_MAGIC, signature, len(blob.context))
    checksum = _checksum(start, version.ljust(32, b"\0"), blob.context)
    return b"".join((start, _OURS.pack(_MARK, checksum, version))).ljust(HEADER_SIZE, b"\0") + bytes(blob.context)


def read_blob(data: bytes | memoryview) -> Blob:
    """What is in a blob, ours or stock's. Raises FormatError if it is damaged, as far as it tells."""
    view = memoryview(data).cast("B")
    if len(view) < HEADER_SIZE:
        raise FormatError(f"{len(view)} bytes are too few: the header has {HEADER_SIZE}", where=_WHERE)
    magic, _, length = _HEADER.unpack_from(view)
    if magic != _MAGIC:
        raise FormatError(f"begins with {magic:#x}, not with {_MAGIC:#x}", where=_WHERE)
    context = view[HEADER_SIZE:]
    if length != len(context):
        raise FormatError(f"has {len(context)} bytes of context instead of {length}", where=_WHERE)
    mark, checksum, version = _OURS.unpack_from(view, _HEADER.size)
    rest = view[_HEADER.size + _OURS.size : HEADER_SIZE]
    if mark != _MARK:
        if any(view[_HEADER.size : HEADER_SIZE]):
            raise FormatError("is damaged: its header is neither ours nor the vendor's", where=_WHERE)
        return Blob(context, "")
    if any(rest) or checksum != _checksum(bytes(view[: _HEADER.size]), version, context):
        raise FormatError("is damaged: the checksum is wrong", where=_WHERE)
    return Blob(context, version.rstrip(b"\0").decode("ascii", errors="replace"))


def _checksum(start: bytes, version: bytes, context: bytes | memoryview) -> int:
    return zlib.crc32(context, zlib.crc32(version, zlib.crc32(start)))
