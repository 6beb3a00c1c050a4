"""A table-driven flatbuffers codec: schemas are dataclasses whose fields carry their flatbuffer type.

    class Segment(Table):
        offset: int = u64()
        size: int = u64()

The order of the fields is the order of the vtable slots (a union takes two). A scalar with the default None is one that
may be absent; a struct of one scalar has the same bytes, and a vector of such structs those of a vector of the scalar.

`serialize` writes a table with the `flatbuffers` package's Builder; `parse` reads one and checks every offset and
length before using it, so that hostile bytes only raise FormatError. Format: the flatbuffers binary format (internals
document).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

import flatbuffers

from delegatekit_api import FormatError

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform() -> Callable[[type], type]:
        """A marker for type checkers, which Python 3.10 lacks."""
        return lambda table: table


_TableT = TypeVar("_TableT", bound="Table")

#: Scalar name -> (size in bytes, struct code).
_SCALARS: Final[dict[str, tuple[int, str]]] = {
    "bool": (1, "?"),
    "i8": (1, "b"),
    "u8": (1, "B"),
    "i16": (2, "h"),
    "i32": (4, "i"),
    "u32": (4, "I"),
    "i64": (8, "q"),
    "u64": (8, "Q"),
    "f32": (4, "f"),
    "f64": (8, "d"),
}
_PREPEND: Final = {
    "bool": "PrependBoolSlot",
    "i8": "PrependInt8Slot",
    "u8": "PrependUint8Slot",
    "i16": "PrependInt16Slot",
    "i32": "PrependInt32Slot",
    "u32": "PrependUint32Slot",
    "i64": "PrependInt64Slot",
    "u64": "PrependUint64Slot",
    "f32": "PrependFloat32Slot",
    "f64": "PrependFloat64Slot",
}
#: Maximum nesting depth of tables.
_MAX_DEPTH: Final = 64


@dataclass(frozen=True)
class _Kind:
    """The flatbuffer type of a field."""

    form: str  # "scalar", "string", "strings", "vector", "ref", "tables", "union", "deprecated"
    scalar: str = ""
    align: int = 1
    default: Any = None
    tables: Callable[[], Any] | None = None
    #: True if a vector of u8 is read as a view of the buffer instead of a copy.
    viewed: bool = False


def _field(kind: _Kind, default: Any = None) -> Any:
    return field(default=default, metadata={"flatbuffer": kind})


def _scalar(name: str) -> Callable[..., Any]:
    zero: Any = {"bool": False, "f32": 0.0, "f64": 0.0}.get(name, 0)

    def declare(default: Any = zero) -> Any:
        return _field(_Kind("scalar", scalar=name, default=default), default)

    declare.__doc__ = f"A {name} scalar; `default` is the schema's default, which is not written."
    return declare


bool_, i8, u8, i16, i32, u32, i64, u64, f32, f64 = (_scalar(name) for name in _SCALARS)


def string() -> Any:
    """A UTF-8 string, or None if absent."""
    return _field(_Kind("string"))


def strings() -> Any:
    """A vector of UTF-8 strings, or None if absent."""
    return _field(_Kind("strings"))


def vector(scalar: str, *, align: int = 1) -> Any:
    """A vector of scalars, or None if absent. Vectors of u8 are bytes. `align` raises the data's alignment."""
    return _field(_Kind("vector", scalar=scalar, align=max(align, _SCALARS[scalar][0])))


def data(*, align: int = 1) -> Any:
    """A vector of u8 that may be large: it is read as a memoryview of the buffer, not copied."""
    return _field(_Kind("vector", scalar="u8", align=align, viewed=True))


def ref(table: Callable[[], type[Table]]) -> Any:
    """A table, or None if absent."""
    return _field(_Kind("ref", tables=table))


def tables(table: Callable[[], type[Table]]) -> Any:
    """A vector of tables, or None if absent."""
    return _field(_Kind("tables", tables=table))


def union(members: Callable[[], Sequence[type[Table]]]) -> Any:
    """One of several tables, or None; the code in the file is the index in `members`, counted from 1."""
    return _field(_Kind("union", tables=members))


def deprecated() -> Any:
    """A slot that is neither written nor read."""
    return _field(_Kind("deprecated"))


@dataclass_transform()
class Table:
    """Base of all schema tables: subclasses become dataclasses."""

    def __init_subclass__(cls) -> None:
        dataclass(cls)


@dataclass(frozen=True)
class _Slot:
    name: str
    slot: int
    kind: _Kind


#: Table class -> what `_slots` found.
_SLOTS: Final[dict[type, tuple[tuple[_Slot, ...], int]]] = {}


def _slots(table: type[Table]) -> tuple[tuple[_Slot, ...], int]:
    """The fields of a table with their vtable slots, and the number of slots."""
    known = _SLOTS.get(table)
    if known is not None:
        return known
    found: list[_Slot] = []
    number = 0
    for item in fields(table):  # type: ignore[arg-type]
        kind: _Kind = item.metadata["flatbuffer"]
        assert item.default is not MISSING
        if kind.form != "deprecated":
            found.append(_Slot(item.name, number, kind))
        number += 2 if kind.form == "union" else 1
    _SLOTS[table] = tuple(found), number
    return _SLOTS[table]


def _members(kind: _Kind) -> Any:
    """The type that a kind refers to: a table, or the tuple of a union's members."""
    assert kind.tables is not None
    return kind.tables()


# -- writing ---------------------------------------------------------------------------------------------------------


def serialize(root: Table, identifier: bytes | None = None) -> bytes:
    """The finished flatbuffer with `root` as its root table and a 4-byte file identifier, if the format has one.

    Equal strings and equal vectors of numbers are stored once. Raises FormatError, with the field's name, for a value
    that its field cannot hold.

    >>> class Segment(Table):
    ...     name: str | None = string()
    ...     sizes: list[int] | None = vector("u32")
    ...
    >>> data = serialize(Segment(name="weights", sizes=[2, 3]), b"SEGM")
    >>> data[4:8], parse(Segment, data, [b"SEGM"])
    (b'SEGM', Segment(name='weights', sizes=[2, 3]))
    """
    writer = _Writer()
    writer.builder.Finish(writer.table(root), file_identifier=identifier)
    return bytes(writer.builder.Output())


class _Writer:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(4096)
        self.shared: dict[Any, int] = {}

    def table(self, value: Table) -> int:
        slots, count = _slots(type(value))
        filled: list[tuple[int, str, Any, Any]] = []
        for slot in slots:
            content = getattr(value, slot.name)
            if content is None:
                continue
            try:
                self._child(slot, content, filled)
            except (struct.error, TypeError, ValueError, KeyError, OverflowError) as error:
                name = f"{type(value).__name__}.{slot.name}"
                raise FormatError(f"cannot hold {content!r:.80}: {error}", where=name) from error
        builder = self.builder
        builder.StartObject(count)
        # Wide fields first: less padding.
        for number, prepend, content, default in sorted(filled, key=_width, reverse=True):
            try:
                getattr(builder, prepend)(number, content, default)
            except (TypeError, ValueError, struct.error) as error:
                raise FormatError(f"cannot hold {content!r:.80}: {error}", where=type(value).__name__) from error
        offset: int = builder.EndObject()
        return offset

    def _child(self, slot: _Slot, content: Any, filled: list[tuple[int, str, Any, Any]]) -> None:
        """Write the field's target and record the field for the table itself."""
        kind = slot.kind
        if kind.form == "scalar":
            # Negative zero compares equal to the default but differs from it.
            negative_zero = content == 0 and isinstance(content, float) and math.copysign(1.0, content) < 0
            default = None if negative_zero else kind.default
            filled.append((slot.slot, _PREPEND[kind.scalar], content, default))
            return
        number = slot.slot
        if kind.form == "union":
            code = _members(kind).index(type(content)) + 1
            filled.append((number, _PREPEND["u8"], code, 0))
            number += 1
        filled.append((number, "PrependUOffsetTRelativeSlot", self._offset(kind, content), 0))

    def _offset(self, kind: _Kind, content: Any) -> int:
        if kind.form in ("ref", "union"):
            return self.table(content)
        if kind.form == "tables":
            return self._offsets([self.table(item) for item in content])
        if kind.form == "strings":
            return self._offsets([self._string(item) for item in content])
        if kind.form == "string":
            return self._string(content)
        size, code = _SCALARS[kind.scalar]
        data = bytes(content) if kind.scalar == "u8" else struct.pack(f"<{len(content)}{code}", *content)
        return self._vector((kind.scalar, kind.align), data, size, kind.align)

    def _offsets(self, offsets: Sequence[int]) -> int:
        self.builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self.builder.PrependUOffsetTRelative(offset)
        end: int = self.builder.EndVector()
        return end

    def _string(self, text: str) -> int:
        return self._vector(("string",), text.encode(), 1, 1, terminated=True)

    def _vector(self, kind: Any, data: bytes, size: int, align: int, *, terminated: bool = False) -> int:
        key = (kind, data)
        known = self.shared.get(key)
        if known is not None:
            return known
        builder = self.builder
        count = len(data) // size
        if terminated:
            data += b"\0"
            builder.StartVector(1, len(data), 1)
        else:
            builder.StartVector(size, count, align)
        builder.head = builder.Head() - len(data)
        builder.Bytes[builder.Head() : builder.Head() + len(data)] = data
        if terminated:
            builder.vectorNumElems = count  # the terminating zero is not counted
        self.shared[key] = end = builder.EndVector()
        return int(end)


_WIDTHS: Final = {_PREPEND[name]: size for name, (size, _) in _SCALARS.items()}


def _width(item: tuple[int, str, Any, Any]) -> int:
    return _WIDTHS.get(item[1], 4)


# -- reading ---------------------------------------------------------------------------------------------------------


def parse(table: type[_TableT], buffer: bytes | bytearray | memoryview, identifiers: Sequence[bytes] = ()) -> _TableT:
    """Read the root table of a flatbuffer, with all checks.

    `identifiers` are the file identifiers allowed (none: not checked). Raises FormatError with table, field and offset.
    Work and memory stay within a small multiple of the buffer's size, whatever the offsets are.
    """
    view = memoryview(buffer).cast("B")
    if len(view) < 8:
        raise FormatError(f"{len(view)} bytes are too few for a flatbuffer", where="offset 0")
    if identifiers and bytes(view[4:8]) not in identifiers:
        wanted = " or ".join(repr(item.decode("latin-1")) for item in identifiers)
        raise FormatError(f"file identifier is {bytes(view[4:8])!r}, not {wanted}", where="offset 4")
    reader = _Reader(view)
    result = reader.table(table, reader.follow(0, table.__name__), table.__name__, 0)
    assert isinstance(result, table)
    return result


class _Reader:
    def __init__(self, view: memoryview) -> None:
        self.view = view
        self.size = len(view)
        # Tables may be shared, but a file that expands to much more than its size is an attack.
        self.budget = 4 * len(view) + 4096
        #: Strings by position: writers share them (file names in stack traces), and each counts once.
        self.strings: dict[int, str] = {}

    def fail(self, what: str, where: str, offset: int) -> FormatError:
        return FormatError(what, where=f"{where} at offset {offset}")

    def spend(self, amount: int, where: str, offset: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise self.fail("the file expands to far more data than it holds", where, offset)

    def follow(self, position: int, where: str) -> int:
        """The target of the offset stored at `position`."""
        if position < 0 or position + 4 > self.size:
            raise self.fail("an offset lies outside the file", where, position)
        (step,) = struct.unpack_from("<I", self.view, position)
        target = position + int(step)
        if step == 0 or target + 4 > self.size:
            raise self.fail("an offset points outside the file", where, position)
        return target

    def table(self, table: type[Table], position: int, where: str, depth: int) -> Table:
        if depth > _MAX_DEPTH:
            raise self.fail("tables are nested too deeply", where, position)
        (back,) = struct.unpack_from("<i", self.view, position)
        vtable = position - back
        if vtable < 0 or vtable + 4 > self.size:
            raise self.fail("the table's vtable lies outside the file", where, position)
        # The length is followed by the size of the table, which readers ignore: tables with the same field layout share
        # a vtable, and Builders before flatbuffers 25.12 let tables of different sizes share one.
        (length,) = struct.unpack_from("<H", self.view, vtable)
        if length < 4 or length % 2 or vtable + length > self.size:
            raise self.fail("the table's vtable is malformed", where, position)
        self.spend(8, where, position)
        slots, _ = _slots(table)
        entries = struct.unpack_from(f"<{length // 2 - 2}H", self.view, vtable + 4)
        values: dict[str, Any] = {}
        for slot in slots:
            entry = entries[slot.slot] if slot.slot < len(entries) else 0
            if slot.kind.form == "union":
                offset = entries[slot.slot + 1] if slot.slot + 1 < len(entries) else 0
                values[slot.name] = self.union(slot, position, (entry, offset), where, depth)
            elif entry:
                values[slot.name] = self.value(slot, position, entry, where, depth)
        return table(**values)

    def place(self, position: int, entry: int, size: int, where: str) -> int:
        """The position of a field of `size` bytes of the table at `position`, checked as in flatbuffers' own
        verifier."""
        place = position + entry
        if entry < 4:
            raise self.fail("a field overlaps its table's header", where, place)
        if place + size > self.size:
            raise self.fail("a field lies outside the file", where, place)
        if place % size:
            raise self.fail(f"a field of {size} bytes is not aligned", where, place)
        return place

    def value(self, slot: _Slot, position: int, entry: int, where: str, depth: int) -> Any:
        kind, where = slot.kind, f"{where}.{slot.name}"
        if kind.form == "scalar":
            size, code = _SCALARS[kind.scalar]
            return struct.unpack_from("<" + code, self.view, self.place(position, entry, size, where))[0]
        target = self.follow(self.place(position, entry, 4, where), where)
        if kind.form == "ref":
            return self.table(_members(kind), target, where, depth + 1)
        if kind.form == "tables":
            return self.vector_of_tables(_members(kind), target, where, depth)
        if kind.form == "strings":
            start, count = self.extent(target, 4, where)
            return [self.string(self.follow(start + 4 * index, where), where) for index in range(count)]
        return self.vector(kind, target, where)

    def vector_of_tables(self, table: type[Table], position: int, where: str, depth: int) -> list[Table]:
        start, count = self.extent(position, 4, where)
        return [
            self.table(table, self.follow(start + 4 * index, where), f"{where}[{index}]", depth + 1)
            for index in range(count)
        ]

    def vector(self, kind: _Kind, position: int, where: str) -> Any:
        if kind.form == "string":
            return self.string(position, where)
        size, code = _SCALARS[kind.scalar]
        start, count = self.extent(position, size, where)
        if kind.viewed:
            return self.view[start : start + count]
        if kind.scalar == "u8":
            return bytes(self.view[start : start + count])
        return list(struct.unpack_from(f"<{count}{code}", self.view, start))

    def string(self, position: int, where: str) -> str:
        known = self.strings.get(position)
        if known is None:
            start, count = self.extent(position, 1, where)
            try:
                known = self.strings[position] = bytes(self.view[start : start + count]).decode()
            except UnicodeDecodeError as error:
                raise self.fail("a string is not UTF-8", where, position) from error
        return known

    def extent(self, position: int, size: int, where: str) -> tuple[int, int]:
        """Start and length of the vector at `position`, whose elements have `size` bytes."""
        (count,) = struct.unpack_from("<I", self.view, position)
        if position + 4 + int(count) * size > self.size:
            raise self.fail(f"a vector of {count} elements extends past the end of the file", where, position)
        self.spend(4 + int(count) * size, where, position)
        return position + 4, int(count)

    def union(self, slot: _Slot, position: int, entries: tuple[int, int], where: str, depth: int) -> Table | None:
        where = f"{where}.{slot.name}"
        entry, offset = entries
        if not entry:
            return None
        code = self.view[self.place(position, entry, 1, where)]
        members = _members(slot.kind)
        if code == 0:
            return None
        if code > len(members):
            raise self.fail(f"union code {code} is unknown (known: 1 to {len(members)})", where, position + entry)
        if not offset:
            raise self.fail("a union has a code but no value", where, position + entry)
        target = self.follow(self.place(position, offset, 4, where), where)
        return self.table(members[code - 1], target, where, depth + 1)
