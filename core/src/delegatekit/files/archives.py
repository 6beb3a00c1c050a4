"""Reading of zip archives: their unpacked size is bounded, and no two readers can see different members in them."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delegatekit_api import FormatError

from .sources import open_file

#: Bytes that any archive may unpack to; larger ones to this multiple of their own size.
_COMPRESSED: Final = 64 << 20
_RATIO: Final = 4
#: Members of an archive, and characters of a name.
_MEMBERS: Final = 100_000
_NAME: Final = 1024
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED: Final = 0x1


class Archive:
    """The members of a zip archive that was checked."""

    def __init__(self, archive: zipfile.ZipFile, where: str, hint: str | None) -> None:
        self._archive = archive
        self._where = where
        self._hint = hint
        #: The names of the members, in the archive's order.
        self.names: tuple[str, ...] = tuple(archive.namelist())

    def read(self, name: str, largest: int | None = None) -> bytes:
        """The bytes of a member. Raises FormatError if it is missing, damaged, or has more than `largest` bytes."""
        if name not in self.names:
            raise FormatError(f"has no member {name}", where=self._where, hint=self._hint)
        size = self._archive.getinfo(name).file_size
        if largest is not None and size > largest:
            what = f"has {size} bytes: {largest} are the most that is read"
            raise FormatError(what, where=f"{self._where}, {name}", hint=self._hint)
        try:
            return self._archive.read(name)
        except Exception as error:  # whatever the decoders raise: BadZipFile, zlib.error, EOFError, struct.error, ...
            what = f"is damaged: {str(error) or type(error).__name__}"
            raise FormatError(what, where=f"{self._where}, {name}", hint=self._hint) from None


@contextmanager
def open_archive(path: str | Path, what: str, *, hint: str | None = None) -> Iterator[Archive]:
    """Open a zip archive; `what` is the expected kind of file, for errors: ".pt2 file".

    Raises FormatError for a file that is none, with duplicate members, encrypted or compressed by anything but
    deflate, or that would become far larger than it is.
    """
    with open_file(path) as file:
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:  # ZipFile passes on whatever its parts raise for a damaged directory
            raise FormatError(f"is no {what}: {error}", where=str(path), hint=hint) from None
        with archive:
            _check(archive, os.fstat(file.fileno()).st_size, str(path), hint)
            yield Archive(archive, str(path), hint)


def _check(archive: zipfile.ZipFile, size: int, where: str, hint: str | None) -> None:
    """Raise FormatError for a fault of the archive's directory."""
    members = archive.infolist()
    if len(members) > _MEMBERS:
        raise FormatError(f"has {len(members)} members: {_MEMBERS} are the most that is read", where=where, hint=hint)
    whole = sum(info.file_size for info in members)
    if whole > max(_COMPRESSED, _RATIO * size):
        raise FormatError(f"has {size} bytes, but unpacks to {whole}", where=where, hint=hint)
    seen: set[str] = set()
    for info in members:
        fault = _fault(info, seen)
        if fault is not None:
            raise FormatError(fault, where=f"{where}, {info.filename[:_NAME]}", hint=hint)
        seen.add(info.filename.lower())


def _fault(info: zipfile.ZipInfo, seen: Collection[str]) -> str | None:
    """The fault of a member, after others with these names."""
    if len(info.filename) > _NAME:
        return f"has a name of {len(info.filename)} characters"
    if info.filename.lower() in seen:  # readers of archives do not agree which of the two is meant
        return "is in the archive twice"
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if info.compress_type not in _METHODS:
        return f"is compressed by method {info.compress_type}, which is not read"
    return None
