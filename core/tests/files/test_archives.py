"""Zip archives from outside: those refused, and the messages."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from delegatekit.files import open_archive
from delegatekit_api import FormatError


def archive(path: Path, *members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytearray:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
    return bytearray(path.read_bytes())


def directory(data: bytearray) -> int:
    """The offset of the first member in the archive's directory."""
    return data.index(b"PK\x01\x02")


def changed(offset: int, value: int) -> Callable[[bytearray], None]:
    """Changes two bytes of the first member, in its directory entry and its own header, where they are 2 earlier."""

    def change(data: bytearray) -> None:
        struct.pack_into("<H", data, directory(data) + offset, value)
        struct.pack_into("<H", data, offset - 2, value)

    return change


def cut(data: bytearray) -> None:
    data[40] ^= 0xFF


def emptied(data: bytearray) -> None:
    del data[:]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(8, 1), r"x\.zip, one: is encrypted"),
        (changed(10, 99), r"x\.zip, one: is compressed by method 99, which is not read"),
        (changed(10, 12), r"x\.zip, one: is compressed by method 12, which is not read"),
        (cut, r"x\.zip, one: is damaged"),
        (emptied, r"x\.zip: is no such file"),
    ],
    ids=["encrypted", "method 99", "bzip2", "damaged", "empty"],
)
def test_a_damaged_archive_is_refused(tmp_path: Path, change: Callable[[bytearray], None], words: str) -> None:
    path = tmp_path / "x.zip"
    data = archive(path, ("one", b"1" * 100))
    change(data)
    path.write_bytes(data)
    with pytest.raises(FormatError, match=words), open_archive(path, "such file") as opened:
        opened.read("one")


def test_members_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    archive(path, ("one", b"1" * 100), ("two", b""), method=zipfile.ZIP_DEFLATED)
    with open_archive(path, "such file", hint="make another") as opened:
        assert opened.names == ("one", "two")
        assert opened.read("one", 100) == b"1" * 100
        with pytest.raises(FormatError, match="one: has 100 bytes: 99 are the most"):
            opened.read("one", 99)
        with pytest.raises(FormatError, match=r"has no member three\n  -> make another"):
            opened.read("three")


def test_names_that_readers_may_take_for_one_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    archive(path, ("one", b"1"), ("One", b"2"))
    with pytest.raises(FormatError, match="One: is in the archive twice"), open_archive(path, "such file"):
        pass


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    archive(path, ("one", bytes(65 << 20)), method=zipfile.ZIP_DEFLATED)
    with pytest.raises(FormatError, match="but unpacks to"), open_archive(path, "such file"):
        pass
