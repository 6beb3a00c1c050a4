"""Damage with a plan: bytes flipped, cut off or spliced, numbers made extreme, segments swapped, tables changed.

Changed tables are the sharpest: the file is well-formed, and one thing in it means something else. All randomness
comes from the `random.Random` argument.
"""

from __future__ import annotations

import dataclasses
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from delegatekit.pte import ptd_schema, read, read_ptd, schema
from delegatekit.pte.ptd_writer import PTD_HEADER, PTD_HEADER_SPACE
from delegatekit.pte.writer import HEADER
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.flatbuffer import Table, serialize

#: A mutation: data, other files of the kind, and the source of randomness.
Mutation: TypeAlias = Callable[[bytes, Sequence[bytes], random.Random], bytes]

_NUMBERS = (0, 1, 2, 3, 4, 7, 8, 15, 16, 63, 64, 127, 128, 255, 256, 4095, 65535, 1 << 20, (1 << 31) - 1, 1 << 31)
EXTREMES = (*_NUMBERS, (1 << 32) - 1, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 1, -1, -2, -(1 << 31))


def flip(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    copy = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4, 16))):
        copy[source.randrange(len(copy))] ^= 1 << source.randrange(8)
    return bytes(copy)


def truncate(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    return data[: source.randrange(len(data))]


def splice(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """A stretch of this file is overwritten by one of another file, or of this one."""
    other = source.choice([data, *others])
    size = source.choice((4, 8, 16, 64, 256, 1024))
    start, target = (4 * source.randrange(max(1, len(item) // 4)) for item in (other, data))
    return data[:target] + other[start : start + size] + data[target + size :]


def insert_or_remove(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    place, size = source.randrange(len(data)), source.choice((1, 4, 8, 128))
    if source.random() < 0.5:
        return data[:place] + data[place + size :]
    return data[:place] + bytes(size) + data[place:]


def overwrite_number(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """An offset, length, size or other number becomes extreme. Most of them are in the first part of the file."""
    copy = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 3))):
        size = source.choice((1, 2, 4, 4, 4, 8))
        limit = min(len(copy), source.choice((64, 4096, 1 << 30)))
        place = size * source.randrange(max(1, (limit - 8) // size))
        value = source.choice(EXTREMES) & ((1 << 8 * size) - 1)
        copy[place : place + size] = value.to_bytes(size, "little")
    return bytes(copy)


def nudge_number(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    copy = bytearray(data)
    place = 4 * source.randrange(len(copy) // 4)
    (value,) = struct.unpack_from("<I", copy, place)
    struct.pack_into("<I", copy, place, (value + source.choice((-128, -16, -8, -4, -1, 1, 4, 8, 16, 128))) % (1 << 32))
    return bytes(copy)


def swap_stretches(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """Two stretches of 128 bytes, as segments are aligned, change places."""
    blocks = max(2, len(data) // 128)
    first, second = (128 * source.randrange(blocks) for _ in range(2))
    copy = bytearray(data)
    a, b = copy[first : first + 128], copy[second : second + 128]
    if len(a) == len(b):
        copy[first : first + 128], copy[second : second + 128] = b, a
    return bytes(copy)


def change_tables(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """One to three fields of the file's tables change in meaning; the file is well-formed again."""
    is_program = data[4:8] == schema.PTE_IDENTIFIER
    try:
        file: Any = read(data) if is_program else read_ptd(data)
    except DelegateKitError:
        return flip(data, others, source)  # it was damaged before
    root = file.program if is_program else file.table
    change_root(root, source)
    try:
        return _rebuilt(data, root, file, is_program)
    except DelegateKitError:
        return flip(data, others, source)  # a value that its field cannot hold


def change_root(root: Table, source: random.Random) -> None:
    """One to three fields of a table, or of the tables below it, change."""
    for _ in range(source.choice((1, 1, 2, 3))):
        found = list(_tables(root))
        if source.random() < 0.15:
            _swap(found, source)
        else:
            _change(source.choice(found), root, source)


MUTATIONS: tuple[Mutation, ...] = (
    flip,
    truncate,
    splice,
    insert_or_remove,
    overwrite_number,
    nudge_number,
    swap_stretches,
    change_tables,
    change_tables,
    change_tables,
    change_tables,
)


def mutate(data: bytes, others: Sequence[bytes], source: random.Random) -> bytes:
    """The data after one to three mutations."""
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        if len(data) >= 16:
            data = source.choice(MUTATIONS)(data, others, source)
    return data


def _tables(table: Table) -> Iterator[Table]:
    """A table and all below it."""
    yield table
    for field in dataclasses.fields(table):  # type: ignore[arg-type]
        value = getattr(table, field.name)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Table):
                yield from _tables(item)


def _change(table: Table, root: Table, source: random.Random) -> None:
    fields = dataclasses.fields(table)  # type: ignore[arg-type]
    if not fields:
        return
    field = source.choice(fields)
    kind, value = field.metadata["flatbuffer"], getattr(table, field.name)
    setattr(table, field.name, _changed(kind, value, root, source))


def _swap(found: Sequence[Table], source: random.Random) -> None:
    """Two tables of one kind exchange a field; or one takes that of the other."""
    first = source.choice(found)
    second = source.choice([item for item in found if type(item) is type(first)])
    fields = dataclasses.fields(first)  # type: ignore[arg-type]
    if not fields:
        return
    name = source.choice(fields).name
    left, right = getattr(first, name), getattr(second, name)
    setattr(first, name, right)
    if source.random() < 0.5:
        setattr(second, name, left)


def _changed(kind: Any, value: Any, root: Table, source: random.Random) -> Any:
    if kind.form == "scalar":
        return _number(kind.scalar, value, source, _neighbours(kind.scalar, root))
    if kind.form in ("string", "ref", "union", "tables", "vector", "strings") and source.random() < 0.1:
        return None
    if kind.form == "deprecated":
        return None
    if kind.form == "string":
        if value and source.random() < 0.5:
            place = source.randrange(len(value))
            return value[:place] + source.choice(["", "x", "0", "[", "]", "{}", "null", "\\"]) + value[place + 1 :]
        return source.choice([*_strings(root), "", "x" * 1000, "\0"])
    if kind.form == "vector":
        items = list(value or ())
        change = source.randrange(5)
        if change == 0 and items:
            del items[source.randrange(len(items))]
        elif change == 1:
            items.insert(source.randrange(len(items) + 1), _number(kind.scalar, 0, source))
        elif change == 2 and len(items) > 1:
            source.shuffle(items)
        elif change == 3:
            items = items * source.choice((0, 2, 50))
        elif items:
            place = source.randrange(len(items))
            items[place] = _number(kind.scalar, items[place], source)
        return bytes(item & 255 for item in items) if kind.scalar == "u8" else items
    if kind.form in ("tables", "strings"):
        items = list(value or ())
        if not items:
            return items
        change, place = source.randrange(4), source.randrange(len(items))
        if change == 0:
            del items[place]
        elif change == 1:
            items.append(items[place])
        elif change == 2:
            items[place] = source.choice(items if kind.form == "tables" else [*_strings(root), ""])
        else:
            source.shuffle(items)
        return items
    members = kind.tables() if kind.form == "union" else (kind.tables(),)
    return source.choice([item for item in _tables(root) if type(item) in members] + [member() for member in members])


def _strings(root: Table) -> list[str]:
    """The strings of a file, as names in its tables."""
    found = [getattr(item, f.name) for item in _tables(root) for f in dataclasses.fields(item)]  # type: ignore[arg-type]
    return [text for text in found if isinstance(text, str)]


def _neighbours(scalar: str, root: Table) -> list[Any]:
    """The numbers of one type in a file."""
    return [
        getattr(item, field.name)
        for item in _tables(root)
        for field in dataclasses.fields(item)  # type: ignore[arg-type]
        if field.metadata["flatbuffer"].scalar == scalar and field.metadata["flatbuffer"].form == "scalar"
    ]


def _number(scalar: str, value: Any, source: random.Random, neighbours: Sequence[Any] = ()) -> Any:
    if neighbours and source.random() < 0.25:
        return source.choice(neighbours)
    if scalar == "bool":
        return not value
    if scalar in ("f32", "f64"):
        return source.choice((0.0, -0.0, 1.0, -1.0, float("inf"), float("nan"), 1e308))
    bits = 8 * int(scalar[1:]) // 8
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if scalar[0] == "i" else (0, (1 << bits) - 1)
    near = [value + step for step in (-8, -4, -1, 1, 4, 8)]
    return source.choice([item for item in (*EXTREMES, *near, *range(12)) if low <= item <= high])


def _rebuilt(data: bytes, root: Table, file: Any, is_program: bool) -> bytes:
    """The file around the changed tables, followed by the old segments."""
    tables = serialize(root, schema.PTE_IDENTIFIER if is_program else ptd_schema.PTD_IDENTIFIER)
    space = HEADER.size if is_program else PTD_HEADER_SPACE
    base = -(-(len(tables) + space) // 128) * 128
    old_base = file.header.segment_base if file.header is not None else len(data)
    segments = data[old_base:]
    if is_program:
        header = HEADER.pack(b"eh00", HEADER.size, len(tables) + space, base, len(segments))
    else:
        header = PTD_HEADER.pack(b"FH01", PTD_HEADER.size, space, len(tables), base, len(segments))
    (start,) = struct.unpack_from("<I", tables)
    head = struct.pack("<I", start + space) + tables[4:8] + header.ljust(space, b"\0") + tables[8:]
    return head.ljust(base, b"\0") + segments
