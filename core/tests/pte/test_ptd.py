"""Data files (.ptd): we read stock's, our output equals stock's, and every fault is one error."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from delegatekit.pte import Datum, PtdImage, ptd_schema, ptd_to_bytes, read_ptd, write_ptd
from delegatekit.pte.ptd_reader import read_data_files
from delegatekit.pte.ptd_schema import FlatTensor, TensorLayout
from delegatekit.pte.segments import Data
from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit import flatbuffer as fb

FLOAT = 6


def layout(*sizes: int, kind: int = FLOAT, order: bytes | None = None) -> TensorLayout:
    return TensorLayout(kind, list(sizes), bytes(range(len(sizes))) if order is None else order)


def image(**data: Data) -> PtdImage:
    return PtdImage(tuple(Datum(key, content) for key, content in data.items()))


GOOD = ptd_to_bytes(PtdImage((Datum("weight", torch.ones(5, 4), layout(5, 4)), Datum("blob", b"x" * 7))))

# -- the stock writer --------------------------------------------------------------------------------------------------


def test_every_table_has_the_stock_fields_in_the_stock_order() -> None:
    spec = importlib.util.find_spec("executorch")
    if spec is None:
        pytest.skip("executorch is not installed")
    (folder,) = list(spec.submodule_search_locations or ())[:1]
    text = (Path(folder) / "extension" / "flat_tensor" / "serialize" / "flat_tensor.fbs").read_text()
    text = re.sub(r"//[^\n]*", "", text)
    assert f'file_identifier "{ptd_schema.PTD_IDENTIFIER.decode()}"' in text
    tables = dict(re.findall(r"\btable\s+(\w+)\s*\{([^}]*)\}", text))
    assert set(tables) == {"TensorLayout", "DataSegment", "NamedData", "FlatTensor"}
    scalars = {
        "int32": "i32",
        "uint8": "u8",
        "uint32": "u32",
        "uint64": "u64",
        "executorch_flatbuffer.ScalarType": "i8",
    }
    for name, body in tables.items():
        theirs = [tuple(part.strip() for part in line.split(":")) for line in body.split(";") if line.strip()]
        ours = []
        for field in dataclasses.fields(getattr(ptd_schema, name)):
            kind = field.metadata["flatbuffer"]
            word = {"vector": kind.scalar, "scalar": kind.scalar, "string": "string"}.get(kind.form) or (
                kind.tables().__name__
            )
            ours.append((field.name, f"[{word}]" if kind.form in ("vector", "tables") else word))
        for (field_name, their_type), mine in zip(theirs, ours, strict=True):
            inner = their_type.strip("[]")
            assert (field_name, their_type.replace(inner, scalars.get(inner, inner))) == mine


def test_what_stock_writes_is_read_with_keys_layouts_and_values(stock_external: Path) -> None:
    _, _, state = torch.load(stock_external / "expected.pt")
    file = read_ptd(stock_external / "one.ptd")
    assert set(file) == set(state)
    for key, stored in file.items():
        assert stored.layout == layout(*state[key].shape)
        assert bytes(stored.data) == state[key].numpy().tobytes()


@pytest.mark.parametrize("name", ["one", "first", "second", "xnnpack"])
def test_our_writer_makes_the_tables_and_segments_of_the_stock_writer(name: str, stock_external: Path) -> None:
    """All but the flatbuffer's inner order: header, tables, alignment and data."""
    stock = read_ptd(stock_external / f"{name}.ptd")
    ours = read_ptd(ptd_to_bytes(PtdImage(tuple(Datum(key, item.data, item.layout) for key, item in stock.items()))))
    assert ours.table == stock.table
    assert ours.size == stock.size
    # Builders may share vtables better: the flatbuffer may be smaller, never larger.
    assert ours.header.flatbuffer_size <= stock.header.flatbuffer_size
    assert dataclasses.replace(ours.header, flatbuffer_size=0) == dataclasses.replace(stock.header, flatbuffer_size=0)
    assert [bytes(data) for data in ours.segments] == [bytes(data) for data in stock.segments]


def test_the_stock_python_reader_reads_what_we_write(stock_process: Any, tmp_path: Path) -> None:
    """Its deserializer, in a process of its own."""
    pytest.importorskip("executorch.extension.pybindings._C")
    script = (
        "import sys\n"
        "from executorch.exir._serialize._cord import Cord\n"
        "from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer\n"
        "found = FlatTensorSerializer().deserialize(Cord(open(sys.argv[1], 'rb').read()))\n"
        "for key, entry in found.named_data.items():\n"
        "    layout = entry.tensor_layout\n"
        "    print(key, len(found.buffers[entry.buffer_index]), layout and (int(layout.scalar_type), layout.sizes))\n"
    )
    (tmp_path / "good.ptd").write_bytes(GOOD)
    printed = stock_process.run(script, tmp_path / "good.ptd")
    assert printed.split("\n")[:2] == ["weight 80 (6, [5, 4])", "blob 7 None"]


# -- writing -----------------------------------------------------------------------------------------------------------


def test_equal_data_is_stored_once_under_all_its_keys() -> None:
    first, second = torch.ones(1024), torch.ones(1024)
    keys = (Datum("a", first, layout(1024)), Datum("b", second, layout(1024)), Datum("c", first, layout(32, 32)))
    file = read_ptd(ptd_to_bytes(PtdImage(keys)))
    assert [len(segment) for segment in file.segments] == [4096]
    assert {key: str(stored.layout) for key, stored in file.items()} == {
        "a": "float [1024]",
        "b": "float [1024]",
        "c": "float [32, 32]",
    }


def test_a_key_with_two_meanings_is_refused_and_one_given_twice_is_stored_once() -> None:
    with pytest.raises(LoweringError, match="key weight: two different"):
        ptd_to_bytes(PtdImage((Datum("weight", b"one"), Datum("weight", b"two"))))
    with pytest.raises(LoweringError, match="key weight: two different"):
        ptd_to_bytes(PtdImage((Datum("weight", bytes(16), layout(4)), Datum("weight", bytes(16), layout(2, 2)))))
    twice = PtdImage((Datum("weight", b"one"), Datum("weight", b"one")))
    assert ptd_to_bytes(twice) == ptd_to_bytes(image(weight=b"one"))


@pytest.mark.parametrize(
    ("datum", "words"),
    [
        (Datum("", b"x"), "is not a key"),
        (Datum("a\0b", b"x"), "is not a key"),
        (Datum("a", b"x", alignment=3), "power of two"),
        (Datum("a", b"xyz", layout(1)), r"has 3 bytes, which is not float \[1\]"),
    ],
)
def test_what_no_reader_would_take_is_not_written(datum: Datum, words: str) -> None:
    with pytest.raises(LoweringError, match=words):
        ptd_to_bytes(PtdImage((datum,)))


def test_segments_are_aligned_as_asked() -> None:
    file = read_ptd(ptd_to_bytes(PtdImage((Datum("a", b"x"), Datum("b", b"y"), Datum("c", b"z", alignment=4096)))))
    offsets = [segment.offset for segment in file.table.segments or ()]
    assert offsets == [0, 128, 4096]
    assert file.header.segment_base % 128 == 0


def test_an_empty_file_and_empty_tensors_are_files_like_others() -> None:
    assert dict(read_ptd(ptd_to_bytes(PtdImage()))) == {}
    file = read_ptd(ptd_to_bytes(PtdImage((Datum("none", torch.ones(0, 3), layout(0, 3)), Datum("one", b"1")))))
    assert [len(stored.data) for stored in file.values()] == [0, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.int64, torch.uint8])
def test_tensors_of_any_dtype_and_stride_keep_their_values(dtype: torch.dtype) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype).t()
    stored = read_ptd(ptd_to_bytes(image(weight=tensor)))["weight"]
    assert bytes(stored.data) == bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


def test_writing_to_a_file_gives_the_same_bytes_and_the_mapped_file_reads_back(tmp_path: Path) -> None:
    write_ptd(image(weight=b"w" * 300), tmp_path / "a.ptd")
    assert (tmp_path / "a.ptd").read_bytes() == ptd_to_bytes(image(weight=b"w" * 300))
    assert bytes(read_ptd(tmp_path / "a.ptd")["weight"].data) == b"w" * 300


def test_a_large_file_is_written_without_a_second_copy(grown: Callable[..., int], tmp_path: Path) -> None:
    script = """
import sys, torch
from delegatekit.pte import Datum, PtdImage, write_ptd

tensors = [torch.full((1 << 22,), float(i)) for i in range(16)]
before = peak()
write_ptd(PtdImage(tuple(Datum(str(i), tensor) for i, tensor in enumerate(tensors))), sys.argv[1])
"""
    path = tmp_path / "large.ptd"
    assert grown(script, path) < 64
    assert path.stat().st_size > 256 << 20
    path.unlink()


# -- reading damaged files ---------------------------------------------------------------------------------------------


def put(offset: int, form: str, *numbers: int) -> bytes:
    data = bytearray(GOOD)
    struct.pack_into("<" + form, data, offset, *numbers)
    return bytes(data)


def rebuilt(change: Any) -> bytes:
    """The good file with its tables changed by `change(table)`, around the same segments."""
    file = read_ptd(GOOD)
    change(file.table)
    tables = fb.serialize(file.table, ptd_schema.PTD_IDENTIFIER)
    size = len(tables) + 48
    base = -(-size // 128) * 128
    (root,) = struct.unpack_from("<I", tables)
    header = struct.pack("<4sIQQQQ", b"FH01", 40, 48, len(tables), base, file.header.segment_data_size)
    head = struct.pack("<I", root + 48) + tables[4:8] + header.ljust(48, b"\0") + tables[8:]
    return head.ljust(base, b"\0") + GOOD[file.header.segment_base :]


def weight(table: FlatTensor) -> Any:
    return table.named_data[0]  # type: ignore[index]


BYTES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "too few"),
    "40 bytes": (GOOD[:40], "too few"),
    "64 bytes": (GOOD[:64], "tables are"),
    "half": (GOOD[: len(GOOD) // 2], "."),
    "last byte gone": (GOOD[:-1], "cut off"),
    "another magic": (GOOD[:4] + b"FT02" + GOOD[8:], "FT01"),
    "a .pte": (GOOD[:4] + b"ET12" + GOOD[8:], "not a .ptd"),
    "header gone": (GOOD[:8] + b"zzzz" + GOOD[12:], "header starts with"),
    "header length 8": (put(12, "I", 8), "header is 8 bytes"),
    "tables inside the header": (put(16, "Q", 8), "not after the header"),
    "tables huge": (put(24, "Q", 1 << 62), "tables are"),
    "tables small": (put(24, "Q", 8), "offset"),
    "segment base huge": (put(32, "Q", 1 << 62), "segments start"),
    "segment base 0": (put(32, "Q", 0), "where the segments start"),
    "segment base in the tables": (put(32, "Q", 64), "segments start"),
    "segment data huge": (put(40, "Q", 1 << 62), "cut off"),
    "segment data too small": (put(40, "Q", 81), "ends at byte"),
    "root offset huge": (put(0, "I", 1 << 30), "offset"),
    "root offset 0": (put(0, "I", 0), "offset"),
    "version 1": (rebuilt(lambda t: setattr(t, "version", 1)), "version 1"),
    "no segments": (rebuilt(lambda t: setattr(t, "segments", None)), "no segments"),
    "no keys": (rebuilt(lambda t: setattr(t, "named_data", None)), "no keys"),
    "key without name": (rebuilt(lambda t: setattr(weight(t), "key", None)), "key 0: has no name"),
    "key with an empty name": (rebuilt(lambda t: setattr(weight(t), "key", "")), "key 0: has no name"),
    "key twice": (rebuilt(lambda t: setattr(weight(t), "key", "blob")), "key blob: appears twice"),
    "segment number": (rebuilt(lambda t: setattr(weight(t), "segment_index", 2)), "segment 2 of 2"),
    "segment offset": (rebuilt(lambda t: setattr(t.segments[0], "offset", 1 << 62)), "not in the file"),
    "segment size": (rebuilt(lambda t: setattr(t.segments[0], "size", 1 << 62)), "not in the file"),
    "segment shorter than the tensor": (rebuilt(lambda t: setattr(t.segments[0], "size", 79)), "has 79 bytes, but"),
    "element type": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "scalar_type", 99)), "element type 99"),
    "no sizes": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "sizes", None)), "no sizes"),
    "no dim order": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "dim_order", None)), "no dim order"),
    "negative size": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "sizes", [-5, -4])), "negative"),
    "size too big": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "sizes", [5, 1 << 30])), "has 80 bytes, but"),
    "dim order": (rebuilt(lambda t: setattr(weight(t).tensor_layout, "dim_order", b"\0\0")), "not a permutation"),
    "rank 17": (rebuilt(lambda t: setattr(weight(t), "tensor_layout", layout(*[1] * 17))), "17 dimensions"),
}


@pytest.mark.parametrize("name", BYTES)
def test_a_damaged_file_is_refused_with_the_fault_and_its_place(name: str) -> None:
    data, words = BYTES[name]
    with pytest.raises(FormatError, match=words) as caught:
        read_ptd(data, "some.ptd")
    assert str(caught.value.where).startswith("some.ptd")


def test_what_rebuilding_does_to_a_good_file_leaves_it_good() -> None:
    assert dict(read_ptd(rebuilt(lambda table: None))) == dict(read_ptd(GOOD))


def test_files_that_are_missing_empty_or_folders_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.ptd").touch()
    for name, words in (("empty.ptd", "is empty"), ("none.ptd", "does not exist"), (".", "is a folder, not a file")):
        with pytest.raises(FormatError, match=words) as caught:
            read_ptd(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


# -- several files -----------------------------------------------------------------------------------------------------


def test_several_files_are_one_set_of_keys(tmp_path: Path) -> None:
    write_ptd(image(a=b"1", both=b"2"), tmp_path / "first.ptd")
    found = read_data_files([tmp_path / "first.ptd", ptd_to_bytes(image(both=b"2", c=b"3"))])
    assert {key: bytes(stored.data) for key, stored in found.items()} == {"a": b"1", "both": b"2", "c": b"3"}
    assert found["c"].file == "data file 1"
    assert set(read_data_files(str(tmp_path / "first.ptd"))) == {"a", "both"}


def test_a_key_with_different_content_in_two_files_is_refused() -> None:
    with pytest.raises(FormatError, match="key a: is in data file 0 and in data file 1, with different content"):
        read_data_files([ptd_to_bytes(image(a=b"1")), ptd_to_bytes(image(a=b"2"))])
    plain = PtdImage((Datum("a", bytes(16), layout(4)),))
    other = PtdImage((Datum("a", bytes(16), layout(2, 2)),))
    with pytest.raises(FormatError, match="key a"):
        read_data_files([ptd_to_bytes(plain), ptd_to_bytes(other)])
