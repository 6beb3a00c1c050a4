"""Our tables are those of ExecuTorch's own schema file: names, order of the slots, types and defaults."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delegatekit.pte import schema
from delegatekit.pte.kernels import runtime_operators
from delegatekit_toolkit import flatbuffer as fb


def stock_schema() -> str:
    spec = importlib.util.find_spec("executorch")
    if spec is None:
        pytest.skip("executorch is not installed")
    (folder,) = list(spec.submodule_search_locations or ())[:1]
    files = [Path(folder) / "exir" / "_serialize" / name for name in ("program.fbs", "scalar_type.fbs")]
    text = "".join(file.read_text() for file in files)
    return re.sub(r"//[^\n]*", "", text)


def declarations(kind: str, text: str) -> dict[str, list[str]]:
    found = re.findall(rf"\b{kind}\s+(\w+)[^{{]*\{{([^}}]*)\}}", text)
    return {name: [item.strip() for item in re.split(r"[;,]", body) if item.strip()] for name, body in found}


STOCK_SCALARS = {
    "bool": "bool",
    "byte": "i8",
    "int8": "i8",
    "ubyte": "u8",
    "uint8": "u8",
    "int": "i32",
    "int32": "i32",
    "uint": "u32",
    "uint32": "u32",
    "int64": "i64",
    "long": "i64",
    "uint64": "u64",
    "ulong": "u64",
    "double": "f64",
}


def written(kind: Any) -> str:
    """One of our fields in the syntax of the stock schema file."""
    if kind.form == "scalar":
        return str(kind.scalar)
    if kind.form == "vector":
        return f"[{kind.scalar}]"
    if kind.form == "tables":
        return f"[{kind.tables().__name__}]"
    if kind.form == "ref":
        return str(kind.tables().__name__)
    return {"string": "string", "union": "union"}[kind.form]


def in_our_words(declaration: str, enums: dict[str, str], unions: dict[str, list[str]]) -> tuple[str, str]:
    name, rest = (part.strip() for part in declaration.split(":", 1))
    kind = re.split(r"[=(\s]", rest)[0]
    vector, inner = kind.startswith("["), kind.strip("[]")
    inner = "union" if inner in unions else STOCK_SCALARS.get(enums.get(inner, inner), enums.get(inner, inner))
    return name, f"[{inner}]" if vector else inner


def test_every_table_has_the_stock_fields_in_the_stock_order() -> None:
    text = stock_schema()
    unions = declarations("union", text)
    enums = dict(re.findall(r"\benum\s+(\w+)\s*:\s*(\w+)", text))
    tables = declarations("table", text)
    assert len(tables) > 30
    for name, fields in tables.items():
        ours = [
            (field.name, written(field.metadata["flatbuffer"])) for field in dataclasses.fields(getattr(schema, name))
        ]
        assert ours == [in_our_words(field, enums, unions) for field in fields], name


def test_no_field_of_the_stock_schema_has_a_default_that_is_not_zero() -> None:
    defaults = re.findall(r":\s*\w+\s*=\s*(\w+)", stock_schema())
    assert set(defaults) <= {"0", "false", "CPU", "SEGMENT"}


def test_unions_number_their_members_as_stock_does() -> None:
    unions = declarations("union", stock_schema())
    assert [table.__name__ for table in schema.KERNEL_TYPES] == unions["KernelTypes"]
    assert [table.__name__ for table in schema.INSTRUCTION_TYPES] == unions["InstructionArguments"]


@pytest.mark.parametrize("ours", [schema.TensorShapeDynamism, schema.DataLocation, schema.TensorDataLocation])
def test_enumerations_have_the_stock_codes(ours: Any) -> None:
    stock = declarations("enum", stock_schema())[ours.__name__]
    assert [member.name for member in ours] == [item.split("=")[0].strip() for item in stock]
    assert [int(member) for member in ours] == list(range(len(stock)))


def test_element_types_have_the_stock_codes() -> None:
    stock = dict(item.replace(" ", "").split("=") for item in declarations("enum", stock_schema())["ScalarType"])
    for member in schema.ScalarType:
        assert int(stock[member.name]) == member


def test_element_types_have_pytorchs_sizes() -> None:
    from delegatekit.pte.dtypes import TORCH_DTYPES

    for code, dtype in TORCH_DTYPES.items():
        assert schema.ELEMENT_SIZE[code] == dtype.itemsize
    assert set(schema.ELEMENT_SIZE) == set(schema.ScalarType)


def test_the_list_of_kernels_is_the_one_of_the_stock_runtime() -> None:
    pytest.importorskip("executorch.extension.pybindings._C")
    # (In a process of its own: libraries that other tests load add theirs.)
    code = "import torch; from executorch.extension.pybindings import _C; print(*_C._get_operator_names(), sep='\\n')"
    stock = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())
    assert runtime_operators() <= stock
    assert len(stock - runtime_operators()) == 0


def test_the_root_is_a_table() -> None:
    assert issubclass(schema.Program, fb.Table)
