"""The flatbuffers codec: other readers read its output, and it checks everything that it reads."""

from __future__ import annotations

import math
import random
import struct
import time
import tracemalloc
from typing import Any

import flatbuffers
import pytest
from flatbuffers import number_types
from flatbuffers.table import Table as PlainTable
from hypothesis import given, settings
from hypothesis import strategies as st

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb

ID = b"TEST"


class Leaf(fb.Table):
    number: int = fb.i32()
    text: str | None = fb.string()


class Other(fb.Table):
    value: float = fb.f64()


class Node(fb.Table):
    flag: bool = fb.bool_()
    small: int = fb.i8()
    byte: int = fb.u8()
    short: int = fb.i16()
    word: int = fb.u32(default=65535)
    long: int = fb.i64()
    unsigned: int = fb.u64()
    single: float = fb.f32()
    gone: Any = fb.deprecated()
    choice: Leaf | Other | None = fb.union(lambda: (Leaf, Other))
    data: bytes | None = fb.vector("u8", align=16)
    numbers: list[int] | None = fb.vector("i64")
    flags: list[bool] | None = fb.vector("bool")
    leaf: Leaf | None = fb.ref(lambda: Leaf)
    children: list[Node] | None = fb.tables(lambda: Node)
    names: list[str] | None = fb.strings()


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low = -(1 << bits - 1) if signed else 0
    return st.integers(low, low + (1 << bits) - 1)


def optional(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


leaves = st.builds(Leaf, number=integers(32, signed=True), text=optional(st.text(max_size=20)))


def nodes(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(
        Node,
        flag=st.booleans(),
        small=integers(8, signed=True),
        byte=integers(8, signed=False),
        short=integers(16, signed=True),
        word=integers(32, signed=False),
        long=integers(64, signed=True),
        unsigned=integers(64, signed=False),
        single=st.floats(width=32, allow_nan=False),
        choice=optional(leaves | st.builds(Other, value=st.floats(allow_nan=False))),
        data=optional(st.binary(max_size=40)),
        numbers=optional(st.lists(integers(64, signed=True), max_size=5)),
        flags=optional(st.lists(st.booleans(), max_size=5)),
        leaf=optional(leaves),
        children=optional(children),
        names=optional(st.lists(st.text(max_size=8), max_size=3)),
    )


trees = st.recursive(nodes(st.none()), lambda inner: nodes(st.lists(inner, max_size=3)), max_leaves=8)


@given(trees)
@settings(max_examples=200, deadline=None)
def test_what_is_written_reads_back_equal(tree: Node) -> None:
    data = fb.serialize(tree, ID)
    assert fb.parse(Node, data, (ID,)) == tree
    assert fb.serialize(tree, ID) == data


@pytest.mark.parametrize(
    ("slot", "flags", "expected"),
    [(4, number_types.BoolFlags, True), (6, number_types.Int8Flags, -3), (14, number_types.Int64Flags, -(1 << 40))],
)
def test_the_packages_own_reader_finds_the_scalars(slot: int, flags: Any, expected: Any) -> None:
    data = fb.serialize(Node(flag=True, small=-3, long=-(1 << 40)), ID)
    table = PlainTable(bytearray(data), struct.unpack_from("<I", data)[0])
    assert table.GetSlot(slot, 0, flags) == expected


def test_the_packages_own_reader_finds_a_union_a_string_and_an_aligned_vector() -> None:
    data = fb.serialize(Node(choice=Leaf(7, "käse"), data=b"\1\2\3"), ID)
    assert data[4:8] == ID
    table = PlainTable(bytearray(data), struct.unpack_from("<I", data)[0])
    # Slot 8 is deprecated; the union's type is slot 9, its value slot 10, the bytes are slot 11.
    assert table.GetSlot(4 + 2 * 9, 0, number_types.Uint8Flags) == 1
    leaf = PlainTable(table.Bytes, table.Indirect(table.Pos + table.Offset(4 + 2 * 10)))
    assert leaf.GetSlot(4, 0, number_types.Int32Flags) == 7
    assert leaf.String(leaf.Pos + leaf.Offset(6)).decode() == "käse"
    start = table.Vector(table.Offset(4 + 2 * 11))
    assert start % 16 == 0
    assert table.VectorLen(table.Offset(4 + 2 * 11)) == 3
    assert data[start : start + 3] == b"\1\2\3"


def test_the_packages_own_reader_finds_a_vector_of_strings() -> None:
    data = fb.serialize(Node(names=["a", "käse", "a"]), ID)
    table = PlainTable(bytearray(data), struct.unpack_from("<I", data)[0])
    start, count = table.Vector(table.Offset(4 + 2 * 16)), table.VectorLen(table.Offset(4 + 2 * 16))
    assert [table.String(start + 4 * index).decode() for index in range(count)] == ["a", "käse", "a"]


def test_a_buffer_of_the_packages_own_builder_reads() -> None:
    builder = flatbuffers.Builder(0)
    text = builder.CreateString("hello")
    builder.StartObject(2)
    builder.PrependInt32Slot(0, -5, 0)
    builder.PrependUOffsetTRelativeSlot(1, text, 0)
    builder.Finish(builder.EndObject(), file_identifier=ID)
    assert fb.parse(Leaf, builder.Output(), (ID,)) == Leaf(-5, "hello")


def test_a_table_written_by_hand_reads() -> None:
    # Root offset, identifier; vtable of 8 bytes for a table of 12; table: vtable distance, number, offset of the text.
    data = struct.pack("<I4sHHHHiiI", 16, ID, 8, 12, 4, 8, 8, 42, 4) + struct.pack("<I2sxx", 2, b"ok")
    assert fb.parse(Leaf, data, (ID,)) == Leaf(42, "ok")


@pytest.mark.parametrize("extent", [8, 16, 60000])
def test_a_table_with_the_vtable_of_one_of_another_size_reads(extent: int) -> None:
    # Builders before flatbuffers 25.12 ignore the table's size (the second number of the vtable) when they search for a
    # vtable to share, and so does the runtime's verifier.
    data = struct.pack("<I4sHHHHiiI", 16, ID, 8, extent, 4, 8, 8, 42, 4) + struct.pack("<I2sxx", 2, b"ok")
    assert fb.parse(Leaf, data, (ID,)) == Leaf(42, "ok")


def test_fields_that_an_older_writer_did_not_know_have_their_defaults() -> None:
    data = struct.pack("<I4sHHi", 12, ID, 4, 4, 4)
    assert fb.parse(Node, data, (ID,)) == Node()
    assert fb.parse(Node, data).word == 65535


def test_values_equal_to_the_default_take_no_space() -> None:
    assert len(fb.serialize(Node(word=65535), ID)) < len(fb.serialize(Node(word=0), ID))


def test_equal_strings_and_vectors_are_stored_once() -> None:
    once = fb.serialize(Node(children=[Node(leaf=Leaf(1, "x" * 100))]), ID)
    twice = fb.serialize(Node(children=[Node(leaf=Leaf(i, "x" * 100)) for i in range(2)]), ID)
    assert len(twice) < len(once) + 80


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (Node(small=200), "Node"),
        (Node(byte=-1), "Node"),
        (Node(unsigned=-1), "Node"),
        (Node(numbers=[1 << 70]), r"Node\.numbers"),
        (Node(numbers=["a"]), r"Node\.numbers"),  # type: ignore[list-item]
        (Node(choice=Node()), r"Node\.choice"),  # type: ignore[arg-type]
        (Node(data=5.0), r"Node\.data"),  # type: ignore[arg-type]
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused_by_name(table: Node, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        fb.serialize(table, ID)


def test_floats_keep_their_special_values() -> None:
    for value in (math.inf, -math.inf, -0.0, 5e-324):
        read = fb.parse(Other, fb.serialize(Other(value), ID))
        assert struct.pack("<d", read.value) == struct.pack("<d", value)
    assert math.isnan(fb.parse(Other, fb.serialize(Other(math.nan), ID)).value)


GOOD = fb.serialize(
    Node(
        choice=Leaf(1, "text"),
        data=b"data" * 4,
        numbers=[1, 2, 3],
        leaf=Leaf(2, "more"),
        children=[Node(leaf=Leaf(3, "deep")), Node(children=[Node()])],
    ),
    ID,
)


def test_another_identifier_is_refused() -> None:
    with pytest.raises(FormatError, match="file identifier is b'TEST', not 'ABCD' or 'EFGH'"):
        fb.parse(Node, GOOD, (b"ABCD", b"EFGH"))


@pytest.mark.parametrize("size", range(0, len(GOOD), 3))
def test_a_cut_buffer_never_reads_past_its_end(size: int) -> None:
    try:
        fb.parse(Node, GOOD[:size], (ID,))
    except FormatError as error:
        assert "offset" in str(error)


def leaf_with(number: int = 4, text: int = 8, distance: int = 8, step: int = 4, length: int = 2) -> bytes:
    data = struct.pack("<I4sHHHHiiI", 16, ID, 8, 12, number, text, distance, 42, step)
    return data + struct.pack("<I2sxx", length, b"ok")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (leaf_with(number=10), "Leaf.number at offset 26: a field of 4 bytes is not aligned"),
        (leaf_with(number=2), "Leaf.number at offset 18: a field overlaps its table's header"),
        (leaf_with(text=60000), "Leaf.text at offset 60016: a field lies outside the file"),
        (leaf_with(distance=100), "vtable lies outside"),
        (leaf_with(distance=-2000), "vtable lies outside"),
        (leaf_with(step=0), "points outside the file"),
        (leaf_with(step=0xFFFFFFFF), "Leaf.text at offset 24: an offset points outside the file"),
        (leaf_with(length=0xFFFFFFFF), "4294967295 elements extends past the end of the file"),
        (leaf_with().replace(b"ok", b"\xff\xfe"), "Leaf.text at offset 28: a string is not UTF-8"),
    ],
)
def test_wild_offsets_are_refused_with_table_field_and_place(data: bytes, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        fb.parse(Leaf, data, (ID,))


def test_an_unknown_union_code_is_refused() -> None:
    class Wide(fb.Table):
        choice: Any = fb.union(lambda: (Leaf, Other, Node))

    class Narrow(fb.Table):
        choice: Any = fb.union(lambda: (Leaf, Other))

    with pytest.raises(FormatError, match=r"Narrow\.choice at offset \d+: union code 3 is unknown \(known: 1 to 2\)"):
        fb.parse(Narrow, fb.serialize(Wide(Node()), ID), (ID,))


class Tree(fb.Table):
    children: list[Tree] | None = fb.tables(lambda: Tree)


def shared_tree(depth: int, width: int) -> bytes:
    """`depth` tables, each with a vector that refers to the next one `width` times: width ** depth paths."""
    vtable = struct.pack("<HHH", 6, 8, 4) + b"\0\0"
    data = bytearray(struct.pack("<I4s", 16, ID) + vtable)
    for level in range(depth):
        table = len(data)
        data += struct.pack("<iI", table - 8, 4)
        data += struct.pack("<I", width if level < depth - 1 else 0)
        for index in range(width if level < depth - 1 else 0):
            data += struct.pack("<I", 4 * (width - index))
    return bytes(data)


def test_shared_tables_unfold_within_reason() -> None:
    assert len(fb.parse(Tree, shared_tree(3, 4), (ID,)).children or ()) == 4


@pytest.mark.parametrize(("depth", "width"), [(40, 2), (12, 50), (60, 100), (500, 1)])
def test_files_that_unfold_without_end_are_refused_at_once(depth: int, width: int) -> None:
    data = shared_tree(depth, width)
    tracemalloc.start()
    start = time.process_time()
    with pytest.raises(FormatError, match=r"expands to far more|nested too deeply"):
        fb.parse(Tree, data, (ID,))
    assert time.process_time() - start < 10
    assert tracemalloc.get_traced_memory()[1] < 64 * len(data) + (4 << 20)
    tracemalloc.stop()


def test_a_table_that_contains_itself_is_refused() -> None:
    data = struct.pack("<I4sHHHxxiIII", 16, ID, 6, 8, 4, 8, 4, 1, 0)
    # The vector's one offset would have to be negative: the nearest possible case is an offset that wraps around.
    data = data[:-4] + struct.pack("<i", -12)
    with pytest.raises(FormatError, match="points outside"):
        fb.parse(Tree, data, (ID,))


def test_random_damage_gives_an_error_or_a_tree() -> None:
    source = random.Random(7)
    refused = 0
    for _ in range(3000):
        data = bytearray(GOOD)
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.choice([0, 1, 0x7F, 0x80, 0xFF, source.randrange(256)])
        try:
            fb.parse(Node, data)
        except FormatError:
            refused += 1
    assert refused > 1000


def test_large_files_are_fast() -> None:
    tree = Node(children=[Node(long=i, numbers=[i, i + 1], leaf=Leaf(i, "name")) for i in range(20_000)])
    start = time.process_time()
    data = fb.serialize(tree, ID)
    middle = time.process_time()
    assert fb.parse(Node, data, (ID,)) == tree
    assert middle - start < 20
    assert time.process_time() - middle < 20
