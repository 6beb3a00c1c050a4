"""Damage by structure to JSON and zip files: each mutant follows from a valid file and a number."""

from __future__ import annotations

import copy
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

#: Values of every type, and of sizes that no field has.
VALUES: Final[Sequence[Any]] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    10**400,
    0.5,
    -0.0,
    1e300,
    5e-324,
    float("nan"),
    float("inf"),
    "",
    "x",
    "0",
    "NaN",
    "\x1b[2J\u202e",
    "\ud800",
    "x" * 70_000,
    'File "' * 20_000,
    [],
    [None],
    [[]],
    ["x", 1],
    {},
    {"": None},
    {"x": {"y": []}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def changed_json(value: Any, chance: random.Random) -> bytes:
    """The text of a value in which one or two parts are changed, or whose text is changed."""
    value = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2))):
        found = list(places(value))
        if not found:
            break
        value = _changed(value, chance.choice(found), chance)
    text = json.dumps(value).encode()
    return text if chance.random() < 0.75 else chance.choice(_TEXTS)(text, chance)


def _changed(value: Any, path: tuple[Any, ...], chance: random.Random) -> Any:
    *way, last = path
    inner = value
    for key in way:
        inner = inner[key]
    match chance.randrange(7):
        case 0 | 1 | 2:
            inner[last] = chance.choice(VALUES)
        case 3:
            del inner[last]
        case 4 if isinstance(inner, dict):
            inner[chance.choice(("", "x", "\x1b]0;", "__class__"))] = inner[last]
        case 4:
            inner.insert(last, copy.deepcopy(inner[last]))
        case 5:
            deep: Any = inner[last]
            for _ in range(chance.choice((1, 30, 300))):
                deep = chance.choice(([deep], {"x": deep}))
            inner[last] = deep
        case _:
            return chance.choice((inner[last], [value], {"x": value}))
    return value


def _cut(text: bytes, chance: random.Random) -> bytes:
    return text[: chance.randrange(len(text) + 1)]


def _flipped(text: bytes, chance: random.Random) -> bytes:
    data = bytearray(text or b"x")
    for _ in range(chance.choice((1, 1, 4))):
        data[chance.randrange(len(data))] = chance.choice(
            (0, 0x1B, 0x22, 0x2C, 0x5B, 0x7B, 0xFF, chance.randrange(256))
        )
    return bytes(data)


def _deep(text: bytes, chance: random.Random) -> bytes:
    count = chance.choice((300, 100_000))
    return b"[" * count + text + b"]" * count * chance.randrange(2)


def _twice(text: bytes, chance: random.Random) -> bytes:
    """One key, repeated."""
    first, colon, rest = text.partition(b'": ')
    key = first.rpartition(b'"')[2]
    return first + colon + b'1, "' + key + b'": ' + rest


def _long_number(text: bytes, chance: random.Random) -> bytes:
    return text.replace(b": ", b": " + b"9" * 20_000, 1)


def _joined(text: bytes, chance: random.Random) -> bytes:
    return text + chance.choice((b"\x00", text, b" 1", b"\xef\xbb\xbf"))


_TEXTS: Final[Sequence[Callable[[bytes, random.Random], bytes]]] = (
    _cut,
    _flipped,
    _deep,
    _twice,
    _long_number,
    _joined,
    lambda text, chance: b"",
    lambda text, chance: text.decode().encode(chance.choice(("utf-16", "utf-32", "utf-7"))),
)


def changed_lines(data: bytes, chance: random.Random) -> bytes:
    """A file with an object of JSON in each line, of which one is changed."""
    lines = data.splitlines()
    number = chance.randrange(len(lines))
    lines[number] = changed_json(json.loads(lines[number]), chance).replace(b"\n", b" ")
    if chance.random() < 0.1:
        chance.shuffle(lines)
    return b"\n".join(lines) + b"\n" * chance.choice((1, 1, 1, 0))


def changed_bytes(data: bytes, chance: random.Random) -> bytes:
    """A file with changed bytes, or with its end cut off."""
    return chance.choice((_cut, _flipped, _flipped))(data, chance)


def changed_zip(data: bytes, chance: random.Random) -> bytes:
    """An archive with a changed member, directory, or bytes."""
    match chance.randrange(5):
        case 0:
            return changed_bytes(data, chance)
        case 1:
            return _changed_directory(data, chance)
    members = members_of(data)
    texts = [index for index, (_, content) in enumerate(members) if content[:1] == b"{"]
    index = chance.choice(texts) if chance.random() < 0.8 else chance.randrange(len(members))
    name, content = members[index]
    if chance.random() < 0.05:
        members[index] = (name, content.ljust(80 << 20, b" "))
    elif index in texts:
        members[index] = (name, changed_json(json.loads(content), chance))
    else:
        members[index] = (name, changed_bytes(content, chance))
    if chance.random() < 0.1:
        members.append(chance.choice(members))
    if chance.random() < 0.1:
        del members[chance.randrange(len(members))]
    return archive_of(members, chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))


def members_of(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def archive_of(members: Sequence[tuple[str, bytes]], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return file.getvalue()


def _changed_directory(data: bytes, chance: random.Random) -> bytes:
    """A field of two or four bytes in some entry of the directory: flags, method, times, sizes, lengths, offset."""
    found, start = bytearray(data), 0
    entries = []
    while (start := data.find(b"PK\x01\x02", start)) >= 0:
        entries.append(start)
        start += 4
    entry, offset = chance.choice(entries), chance.choice((4, 6, 8, 10, 12, 16, 20, 24, 28, 30, 32, 34, 36, 42))
    form = "<I" if offset in (16, 20, 24, 42) else "<H"
    struct.pack_into(form, found, entry + offset, chance.choice((0, 1, 8, 9, 12, 14, 99, 0x7FFF, 0xFFFF)))
    return bytes(found)
