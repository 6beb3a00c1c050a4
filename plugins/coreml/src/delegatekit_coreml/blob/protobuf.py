"""Reads the wire format of protocol buffers, and checks every length.

A message is a `Fields`: access by number and kind. Format: "Encoding" of the Protocol Buffers documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, TypeAlias

from delegatekit_api import FormatError

#: A varint, the bytes of a number of fixed size, or the bytes of anything with a length.
_Raw: TypeAlias = "int | bytes | memoryview"

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MOST_DEPTH: Final = 48
_WORD: Final = 1 << 64


class Fields:
    """One message. Absent fields have their default: 0, "", nothing."""

    __slots__ = ("_depth", "_found", "where")

    def __init__(self, data: memoryview, where: str, depth: int = 0) -> None:
        """Raises FormatError for a message that does not end where it should, or is nested too deeply."""
        if depth > _MOST_DEPTH:
            raise FormatError(f"messages are nested more than {_MOST_DEPTH} deep", where=where)
        self.where = where
        self._depth = depth
        self._found = _split(data, where)

    def has(self, number: int) -> bool:
        """True if the field is present."""
        return number in self._found

    def number(self, number: int) -> int:
        """A varint."""
        found = self._found.get(number)
        if not found:
            return 0
        value = found[-1]
        if not isinstance(value, int):
            raise self._wrong(number)
        return value

    def text(self, number: int) -> str:
        """A string."""
        return self._as_text(number, self._found[number][-1]) if number in self._found else ""

    def texts(self, number: int) -> tuple[str, ...]:
        """Strings."""
        return tuple(self._as_text(number, value) for value in self._found.get(number, ()))

    def data(self, number: int) -> memoryview:
        """Bytes."""
        found = self._found.get(number)
        if not found:
            return memoryview(b"")
        value = found[-1]
        if not isinstance(value, memoryview):
            raise self._wrong(number)
        return value

    def message(self, number: int) -> Fields:
        """A message; an empty one if it is absent."""
        return Fields(self.data(number), self.where, self._depth + 1)

    def messages(self, number: int) -> Iterator[Fields]:
        """Messages."""
        for value in self._found.get(number, ()):
            if not isinstance(value, memoryview):
                raise self._wrong(number)
            yield Fields(value, self.where, self._depth + 1)

    def entries(self, number: int) -> dict[str, Fields]:
        """A map of strings to messages. Raises FormatError for a duplicate key."""
        found: dict[str, Fields] = {}
        for entry in self.messages(number):
            key = entry.text(1)
            if key in found:
                raise FormatError(f"has {key!r:.60} twice", where=self.where)
            found[key] = entry.message(2)
        return found

    def varints(self, number: int) -> list[int]:
        """Varints, packed or not."""
        found: list[int] = []
        for value in self._found.get(number, ()):
            if isinstance(value, int):
                found.append(value)
            elif isinstance(value, memoryview):
                at = 0
                while at < len(value):
                    item, at = _varint(value, at, self.where)
                    found.append(item)
            else:
                raise self._wrong(number)
        return found

    def floats(self, number: int) -> list[float]:
        """Numbers of 4 bytes each, packed or not."""
        data = b"".join(value for value in self._found.get(number, ()) if not isinstance(value, int))
        try:
            return [value for (value,) in struct.iter_unpack("<f", data)]
        except struct.error:
            raise self._wrong(number) from None

    def _as_text(self, number: int, value: _Raw) -> str:
        if not isinstance(value, memoryview):
            raise self._wrong(number)
        try:
            return str(value, "utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"field {number} is no text: {error}", where=self.where) from None

    def _wrong(self, number: int) -> FormatError:
        return FormatError(f"field {number} has another type", where=self.where)


def signed(value: int) -> int:
    """A varint as a signed 64-bit number.

    >>> signed((1 << 64) - 1)
    -1
    """
    return value - _WORD if value >= _WORD >> 1 else value


def _split(data: memoryview, where: str) -> dict[int, list[_Raw]]:
    """The raw values of each field, in order."""
    found: dict[int, list[_Raw]] = {}
    at, end = 0, len(data)
    value: _Raw
    while at < end:
        key, at = _varint(data, at, where)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at, where)
        else:
            if kind == _LENGTH:
                size, at = _varint(data, at, where)
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
            else:
                raise FormatError(f"field {key >> 3} has the unknown type {kind}", where=where)
            if size > end - at:
                raise FormatError(f"field {key >> 3} has {size} bytes, {end - at} are left", where=where)
            value = data[at : at + size]
            at += size
            if kind != _LENGTH:
                value = bytes(value)
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data: memoryview, at: int, where: str) -> tuple[int, int]:
    """A varint, and the data after it."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value % _WORD, at
        shift += 7
    raise FormatError("a number does not end", where=where)
