"""Blobs of a backend's own format: sealed so that damage is detected; access to the data stored beside them.

SEAL = Seal(b"MYBLOB\\0\\0", version=1, name="MyBackend blob", hint="install the delegatekit-mine that made the file")
blob = SEAL.wrap(body)          # in preprocess
body = SEAL.unwrap(payload.blob)  # in the runtime
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from delegatekit_api import DelegatePayload, FormatError

_START: Final = struct.Struct("<8sI")
_CHECKSUM: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class Seal:
    """The header of a blob: magic, version, length and a checksum.

        offset  bytes  what (little endian)
        0       8      magic
        8       4      version of the format
        12      4      CRC-32 of the 12 bytes before it, of the length, and of the body
        16      8      length of the body in bytes
        24             the body, to the end of the blob

    A backend whose blobs are sealed may declare `integrity_check=True` if its constants are checked, too
    (`content.load_constant` does).

    >>> seal = Seal(b"DEMOBLOB", version=2, name="demo blob")
    >>> bytes(seal.unwrap(seal.wrap(b"steps")))
    b'steps'
    >>> seal.unwrap(seal.wrap(b"steps")[:-1])
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: demo blob: has 4 bytes instead of 5: cut off, or something was appended
    """

    #: The first 8 bytes of the blobs.
    magic: bytes
    #: Changes whenever an older runtime would misread a blob.
    version: int
    #: The blob's name in messages.
    name: str
    #: What to do about a blob of another version.
    hint: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a magic that is not 8 bytes long."""
        if len(self.magic) != 8:
            raise ValueError(f"the magic {self.magic!r} is not 8 bytes long")

    @property
    def header_size(self) -> int:
        """Bytes in front of the body."""
        return _START.size + _CHECKSUM.size + _LENGTH.size

    def header(self, body: bytes | bytearray | memoryview) -> bytes:
        """The header alone, for a body that the device reads bare: store it beside, as a compile spec."""
        start, length = _START.pack(self.magic, self.version), _LENGTH.pack(len(body))
        return b"".join((start, _CHECKSUM.pack(_checksum(start, length, body)), length))

    def wrap(self, body: bytes) -> bytes:
        """The blob with this body."""
        return self.header(body) + body

    def unwrap(self, blob: bytes | bytearray | memoryview) -> memoryview:
        """The body, without a copy. Raises FormatError if any bit of the blob differs from what was written."""
        data = memoryview(blob).cast("B")
        body = data[self.header_size :]
        self.check(data[: self.header_size], body)
        return body

    def check(self, header: bytes | memoryview, body: bytes | bytearray | memoryview) -> None:
        """Check a body by its header. Raises FormatError if any bit of either differs from what was written.

        >>> seal = Seal(b"DEMOBLOB", version=2, name="demo blob")
        >>> seal.check(seal.header(b"steps"), b"steps")
        """
        data = memoryview(header).cast("B")
        if len(data) != self.header_size:
            much = "few" if len(data) < self.header_size else "many"
            raise self._refused(f"{len(data)} bytes are too {much}: the header has {self.header_size}")
        magic, version = _START.unpack_from(data)
        if magic != self.magic:
            raise self._refused(f"begins with {magic!r}, not with {self.magic!r}")
        if version != self.version:
            what = f"has version {version} of the format: this release reads version {self.version}"
            raise FormatError(what, where=self.name, hint=self.hint)
        (checksum,) = _CHECKSUM.unpack_from(data, _START.size)
        (length,) = _LENGTH.unpack_from(data, _START.size + _CHECKSUM.size)
        if length != len(body):
            raise self._refused(f"has {len(body)} bytes instead of {length}: cut off, or something was appended")
        start, middle = data[: _START.size], data[self.header_size - _LENGTH.size : self.header_size]
        if checksum != _checksum(start, middle, body):
            raise self._refused("is damaged: the checksum is wrong")

    def _refused(self, what: str) -> FormatError:
        return FormatError(what, where=self.name)


def _checksum(*parts: bytes | bytearray | memoryview) -> int:
    found = 0
    for part in parts:
        found = zlib.crc32(part, found)
    return found


def compile_spec(payload: DelegatePayload, key: str, where: str = "delegate") -> bytes | None:
    """The value of a compile spec; None if the file has none. Raises FormatError if it has two.

    >>> from delegatekit_api import CompileSpec
    >>> payload = DelegatePayload("Mine", memoryview(b""), (CompileSpec("target", b"a1"),), (), (), {}, bytes)
    >>> compile_spec(payload, "target"), compile_spec(payload, "mode")
    (b'a1', None)
    """
    found = [spec.value for spec in payload.compile_specs if spec.key == key]
    if len(found) > 1:
        raise FormatError(f"has {len(found)} compile specs {key!r}", where=where)
    return bytes(found[0]) if found else None


def check_specs(payload: DelegatePayload, known: Collection[str], where: str = "delegate") -> None:
    """Raise FormatError for a compile spec unknown to the runtime: it may change what the blob means.

    >>> from delegatekit_api import CompileSpec
    >>> payload = DelegatePayload("Mine", memoryview(b""), (CompileSpec("mode", b""),), (), (), {}, bytes)
    >>> check_specs(payload, {"target"})
    Traceback (most recent call last):
    ...
    delegatekit_api._errors.FormatError: delegate: has a compile spec 'mode', which this release does not know
    """
    for spec in payload.compile_specs:
        if spec.key not in known:
            raise FormatError(f"has a compile spec {spec.key!r:.80}, which this release does not know", where=where)


def named_bytes(payload: DelegatePayload, key: str, size: int | None = None, where: str = "delegate") -> memoryview:
    """The named data under a key. Raises FormatError if the file has none, or not `size` bytes of it.

    >>> payload = DelegatePayload("Mine", memoryview(b""), (), (), (), {"weights": memoryview(b"1234")}, bytes)
    >>> bytes(named_bytes(payload, "weights", 4))
    b'1234'
    """
    found = payload.named_data.get(key)
    if found is None:
        raise FormatError(f"the file has no data {key!r:.80}", where=where)
    if size is not None and found.nbytes != size:
        raise FormatError(f"has {found.nbytes} bytes instead of {size}", where=f"named data {key}")
    return found
