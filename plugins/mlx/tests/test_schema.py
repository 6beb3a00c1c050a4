"""The tables of the format, compared with ExecuTorch's own description of it."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from delegatekit_mlx.blob import schema
from delegatekit_mlx.blob.schema import Role, places

#: The vendor's types of scalars -> those of the codec.
_SCALARS = {
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "uint32": "u32",
    "int64": "i64",
    "uint64": "u64",
    "float": "f32",
    "double": "f64",
    "bool": "bool",
    "SlotType": "i8",
    "Tid": "u32",
    "Vid": "u32",
}
_WRITTEN = {"Tid": Role.WRITES, "[Tid]": Role.WRITES_ALL, "Vid": Role.WRITES_VALUE}
_READ = {"Tid": Role.READS, "[Tid]": Role.READS_ALL, "Vid": Role.READS_VALUE, "IntOrVid": Role.TERM}
_FIELD = re.compile(r"(\w+)\s*:\s*([\[\]\w]+)\s*(?:=\s*([^;(\s]+))?\s*(\(required\))?\s*;")


@pytest.fixture(scope="module")
def vendors() -> str:
    found = find_spec("executorch")
    for folder in found.submodule_search_locations or () if found else ():
        path = Path(folder) / "backends/mlx/serialization/schema.fbs"
        if path.exists():
            return re.sub(r"//.*", "", path.read_text("utf-8"))
    pytest.skip("ExecuTorch's MLX backend is not installed")


def test_operators_have_the_vendors_codes(vendors: str) -> None:
    match = re.search(r"union OpNode \{(.*?)\}", vendors, re.S)
    assert match
    assert [table.__name__ for table in schema.OPERATORS] == re.findall(r"\w+", match[1])


def test_tables_have_the_vendors_fields(vendors: str) -> None:
    tables = re.findall(r"table (\w+) \{(.*?)\}", vendors, re.S)
    assert len(tables) > 130
    for name, body in tables:
        table: Any = getattr(schema, name)
        wanted, found = _FIELD.findall(body), fields(table)
        assert [item[0] for item in wanted if item[1] != "OpNode"] == [item.name for item in found if item.name != "op"]
        for (field_name, kind, default, required), item in zip(wanted, found, strict=True):
            own = item.metadata["flatbuffer"]
            where = f"{name}.{field_name}"
            if kind in _SCALARS and own.form == "scalar":
                assert own.scalar == _SCALARS[kind], where
            if default and kind != "SlotType":
                parsed = {"null": None, "true": True, "false": False}.get(default, default)
                assert own.default == (float(parsed) if isinstance(parsed, str) else parsed), where
            if kind in ("Tid", "Vid"):
                assert own.default is None, where
            if name.endswith("Node") and required:
                assert next(place for place in places(table) if place.name == field_name).required, where


def test_what_operators_compute_is_told(vendors: str) -> None:
    """What they read is what is left of their tensors and values."""
    for name, body in re.findall(r"table (\w+Node) \{(.*?)\}", vendors, re.S):
        roles = {place.name: place.role for place in places(getattr(schema, name))}
        for field_name, kind, *_ in _FIELD.findall(body):
            if kind in _WRITTEN and field_name in ("out", "outs", "outputs", "sliced"):
                assert roles[field_name] is _WRITTEN[kind], f"{name}.{field_name}"
            elif kind in _READ:
                assert roles[field_name] is _READ[kind], f"{name}.{field_name}"
