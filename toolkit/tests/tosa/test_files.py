"""TOSA files: readers generated from Arm's schema accept ours, and we read files written by stock."""

from __future__ import annotations

import random
import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from delegatekit_api import FormatError
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit import tosa
from delegatekit_toolkit.tosa import OPERATORS, DType, Operator, schema
from delegatekit_toolkit.tosa.reader import read, result_names
from delegatekit_toolkit.tosa.types import pack


def example(operator: type[Operator]) -> Operator:
    """An operator whose attributes all differ from zero and from each other."""
    values: dict[str, Any] = {}
    for number, item in enumerate(fields(operator), 2):
        hint = str(item.type)
        values[item.name] = (
            True
            if hint == "bool"
            else tuple(range(number, number + hint.count("int")))
            if hint.startswith("tuple")
            else DType.INT48
            if hint == "DType"
            else tosa.Rounding.DOUBLE
            if hint == "Rounding"
            else tosa.NanMode.IGNORE
            if hint == "NanMode"
            else tosa.ResizeMode.BILINEAR
            if hint == "ResizeMode"
            else number
        )
    return operator(**values)


def single(operator: Operator) -> tosa.Graph:
    """A graph of one operation, whatever its meaning."""
    graph = tosa.Graph()
    inputs = [graph.input(role, (1, 2), DType.INT16) for role in operator.operands]
    graph.output(graph.add(operator, inputs, (1, 2), DType.INT16, "result"))
    return graph


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


#: Names of fields in the schema that differ from the attribute's.
RENAMED = {"minimum": "min_val", "maximum": "max_val", "rounding": "rounding_mode"}


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_arms_reader_finds_every_attribute(operator: type[Operator]) -> None:
    generated = pytest.importorskip("tosa.TosaGraph", reason="tosa-tools is not installed")
    from importlib import import_module

    from tosa.Op import Op

    written = example(operator)
    root = generated.TosaGraph.GetRootAs(tosa.write(single(written)))
    version = root.Version()
    assert (version._Major(), version._Minor(), version._Patch(), version._Draft()) == (1, 0, 0, False)
    block = root.Regions(0).Blocks(0)
    (found,) = (block.Operators(index) for index in range(block.OperatorsLength()))
    assert found.Op() == getattr(Op, operator.name) == operator.code
    assert [found.Inputs(index).decode() for index in range(found.InputsLength())] == list(operator.operands)
    assert found.Outputs(0) == b"result"
    unions = vars(import_module("tosa.Attribute").Attribute)
    (name,) = (key for key, value in unions.items() if value == found.AttributeType())
    assert name.lower() == operator.name.replace("_", "").lower() + "attribute"
    table = getattr(import_module(f"tosa.{name}"), name)()
    table.Init(found.Attribute().Bytes, found.Attribute().Pos)
    for item in fields(operator):
        value, key = getattr(written, item.name), camel(RENAMED.get(item.name, item.name))
        if isinstance(written, tosa.Clamp) and item.name in RENAMED:
            assert bytes(getattr(table, f"{key}AsNumpy")()) == pack(np.array(value, "<i2"), DType.INT16)
        elif isinstance(value, tuple):
            assert tuple(getattr(table, f"{key}AsNumpy")()) == value
        else:
            assert getattr(table, key)() == value
    public = {
        key for key in vars(type(table)) if not re.match("_|Init|GetRoot|.*(AsNumpy|Length|IsNone|HasIdent)", key)
    }
    assert public == {camel(RENAMED.get(item.name, item.name)) for item in fields(operator)} | (
        public & {f"{type(table).__name__}BufferHasIdentifier"}
    )


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=lambda operator: operator.name)
def test_what_is_written_reads_back(operator: type[Operator]) -> None:
    graph = single(example(operator))
    data = tosa.write(graph)
    back = read(data)
    assert back.operations[0].operator == graph.operations[0].operator
    assert tosa.write(back) == data


def test_constants_read_back(small_graph: tosa.Graph, small_program: bytes) -> None:
    back = read(small_program)
    assert back.name == "small"
    assert [tensor.name for tensor in back.constants] == [tensor.name for tensor in small_graph.constants]
    for mine, theirs in zip(back.constants, small_graph.constants, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine.data, theirs.data)
    assert tosa.write(back) == small_program
    names = [operation.output.name for operation in small_graph.operations]
    assert result_names(small_program)[-len(names) :] == names


def test_all_types_of_constants_read_back() -> None:
    graph = tosa.Graph()
    for dtype in DType:
        if dtype != DType.SHAPE:
            graph.output(graph.add(tosa.Identity(), [graph.constant([0, 1, 1], dtype)], (3,), dtype, dtype.name))
    for constant in read(tosa.write(graph)).constants:
        np.testing.assert_array_equal(constant.data, [0, 1, 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "too few"),
        (lambda data: data.replace(b"TOSA", b"TFL3", 1), "file identifier"),
        (lambda data: data[: len(data) // 2], "file|vtable"),
        (lambda data: data.replace(b"conv_bias", b"conv_sums"), "tensor conv_sums: is defined twice"),
    ],
)
def test_damage_gives_one_clear_error(small_program: bytes, damage: Any, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        read(damage(small_program))


def test_files_that_are_not_for_us_are_refused(small_program: bytes) -> None:
    root = fb.parse(schema.TosaGraph, small_program)
    (block,) = root.regions[0].blocks
    block.operators[-1].op = 69
    with pytest.raises(FormatError, match=r"operator 69 \(flat\): is not one of the supported operators"):
        read(fb.serialize(root, schema.IDENTIFIER))
    block.operators[-1].outputs = []
    with pytest.raises(FormatError, match="does not have one result"):
        read(fb.serialize(root, schema.IDENTIFIER))
    block.operators.pop()
    with pytest.raises(FormatError, match="returns 'flat', which is never computed"):
        read(fb.serialize(root, schema.IDENTIFIER))
    block.outputs = ["nobody"]
    with pytest.raises(FormatError, match="outputs: names the tensor 'nobody', which does not exist"):
        read(fb.serialize(root, schema.IDENTIFIER))
    block.tensors[0].shape = [1, -8, 8, 16]
    with pytest.raises(FormatError, match=r"tensor x: has the sizes \(1, -8, 8, 16\): each must be at least 1"):
        read(fb.serialize(root, schema.IDENTIFIER))
    block.tensors[0].type = 18
    with pytest.raises(FormatError, match="tensor x: has the element type 18"):
        read(fb.serialize(root, schema.IDENTIFIER))
    root.version.major = 2
    with pytest.raises(FormatError, match="version 2"):
        read(fb.serialize(root, schema.IDENTIFIER))


def test_random_damage_gives_format_errors_only(small_program: bytes) -> None:
    dice = random.Random(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(small_program)
        for _ in range(dice.randint(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            read(damaged)
        except FormatError:
            refused += 1
    assert refused > 100
