"""The blob: stock's deserializer reads our blobs, and the reader checks everything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from delegatekit_api import DelegatePayload, FormatError, TensorSpec
from delegatekit_conformance.testkit import lower
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_vulkan.blob import schema
from delegatekit_vulkan.blob.envelope import FLATBUFFER_OFFSET, HEADER, IDENTIFIER, MAGIC
from delegatekit_vulkan.blob.reader import parse, read_graph
from delegatekit_vulkan.blob.writer import serialize
from delegatekit_vulkan.ir.graph import Graph, Node, SymInt, Tensor
from delegatekit_vulkan.ir.types import DataType

FLOAT, INT = DataType.FLOAT32, DataType.INT32


class Sums(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x + self.steps) * 2, x - 2


def stock_graph(blob: bytes) -> Any:
    """The blob as read by stock's own deserializer."""
    module = pytest.importorskip("executorch.backends.vulkan.serialization.vulkan_graph_serialize")
    return module.flatbuffer_to_vk_graph(module.extract_vk_flatbuffer(blob))


def test_stock_reads_what_we_write() -> None:
    delegate = lower(Sums(), torch.randn(2, 4), backend="vulkan").delegate
    ours, _ = parse(delegate.blob)
    theirs = stock_graph(delegate.blob)
    assert [call.name for call in theirs.chain] == [call.name for call in ours.chain or ()]
    assert [call.args for call in theirs.chain] == [call.args for call in ours.chain or ()]
    assert theirs.input_ids == ours.input_ids and theirs.output_ids == ours.output_ids
    for wanted, value in zip(theirs.values, ours.values or (), strict=True):
        assert type(wanted.value).__name__ == type(value.value).__name__
        if isinstance(value.value, schema.VkTensor):
            assert wanted.value.dims == value.value.dims
            assert int(wanted.value.datatype) == value.value.datatype
            assert wanted.value.constant_id == value.value.constant_id
            assert int(wanted.value.memory_layout) == value.value.memory_layout
    assert all(entry.named_key in delegate.named_data for entry in theirs.constants)


def test_all_kinds_of_values_come_back() -> None:
    x, y, n = tensor(2), tensor(2), SymInt()
    weight = Tensor((3,), INT, INT, torch.tensor([1, 2, 3], dtype=torch.int32))
    scalars = [None, True, False, 0, 3, -1.5, 0.0, "floor"]
    arguments = [x, *scalars, (1, 2), (), (x, None), weight]
    nodes = [Node("sym_size.int", [x, 0], n), Node("test", [*arguments, (n, 4)], (y, tensor(1)))]
    graph = Graph([x], [y], nodes)
    found = read_graph(payload(graph))
    first, second = found.nodes
    assert isinstance(first.result, SymInt)
    got = second.arguments
    assert got[1:11] == arguments[1:11] and [type(item) for item in got[1:9]] == [type(item) for item in arguments[1:9]]
    assert got[11] == (found.inputs[0], None) and got[13] == (first.result, 4)
    assert isinstance(got[12], Tensor) and got[12].data is not None and got[12].data.tolist() == [1, 2, 3]
    assert isinstance(second.result, tuple) and second.result[0] is found.outputs[0]


def test_the_same_program_gives_the_same_bytes() -> None:
    blobs = {lower(Sums(), torch.zeros(2, 4), backend="vulkan").delegate.blob for _ in range(2)}
    assert len(blobs) == 1


def tensor(*shape: int, datatype: DataType = FLOAT) -> Tensor:
    return Tensor(shape, datatype, datatype)


def payload(graph: Graph, blob: bytes | None = None) -> DelegatePayload:
    """A call of the graph's delegate."""
    made = serialize(graph)
    named = {item.key: memoryview(item.data.numpy()).cast("B") for item in made.named_data}  # type: ignore[union-attr]
    inputs, outputs = (
        tuple(TensorSpec(str(item.staging.torch).removeprefix("torch."), item.sizes) for item in tensors)
        for tensors in (graph.inputs, graph.outputs)
    )
    data = memoryview(blob if blob is not None else made.blob)
    return DelegatePayload("VulkanBackend", data, (), inputs, outputs, named, lambda keys: b"")


def two_calls() -> Graph:
    x, middle, y = tensor(2), tensor(2), tensor(2)
    weight = Tensor((2,), FLOAT, FLOAT, torch.ones(2))
    return Graph([x], [y], [Node("a", [x, weight], middle), Node("b", [middle, 1, (2, 3)], y)])


def changed(edit: Any) -> DelegatePayload:
    """The delegate of `two_calls` after a change of its tables."""
    good = two_calls()
    tables, _ = parse(serialize(good).blob)
    edit(tables)
    flatbuffer = fb.serialize(tables, IDENTIFIER)
    header = HEADER.pack(MAGIC, HEADER.size, FLATBUFFER_OFFSET, len(flatbuffer), FLATBUFFER_OFFSET + len(flatbuffer), 0)
    return payload(good, header.ljust(FLATBUFFER_OFFSET, b"\0") + flatbuffer)


def values(tables: schema.VkGraph, kind: type) -> list[Any]:
    return [item.value for item in tables.values or () if isinstance(item.value, kind)]


def set_(table: Any, **fields: Any) -> None:
    for name, value in fields.items():
        setattr(table, name, value)


DAMAGE = {
    "an unknown version": (lambda t: set_(t, version="1"), "has version '1'"),
    "a value that is not there": (lambda t: set_(t.chain[0], args=[99, 1]), "names value 99"),
    "a negative value": (lambda t: set_(t.chain[0], args=[-2, 1]), "names value -2"),
    "a call without operator": (lambda t: set_(t.chain[0], name=""), "has no operator"),
    "a call without arguments": (lambda t: set_(t.chain[0], args=[]), "has no operator or no arguments"),
    "a number as result": (lambda t: set_(t.chain[1], args=t.chain[1].args[:-1]), "its result is not a tensor"),
    "an input that a call writes": (lambda t: set_(t.chain[0], args=[0, 1, 0]), "which is an input"),
    "a constant that a call writes": (lambda t: set_(t.chain[0], args=[0, 1, 1]), "which is a constant"),
    "a value read before it is computed": (lambda t: t.chain.reverse(), "which is not computed before"),
    "no calls": (lambda t: set_(t, chain=[]), "which is never computed"),
    "an unknown type": (lambda t: set_(values(t, schema.VkTensor)[0], datatype=77), "unknown type"),
    "64 bits": (lambda t: set_(values(t, schema.VkTensor)[0], datatype=7), "computes in 32 bits"),
    "an unknown layout": (lambda t: set_(values(t, schema.VkTensor)[0], memory_layout=7), "unknown type or layout"),
    "nine axes": (lambda t: set_(values(t, schema.VkTensor)[2], dims=[1] * 9), "has 9 axes"),
    "huge sizes": (lambda t: set_(values(t, schema.VkTensor)[2], dims=[1 << 31, 1 << 31]), "more than 64 GiB"),
    "another input": (lambda t: set_(values(t, schema.VkTensor)[0], dims=[3]), "in the program float32 (2,)"),
    "no inputs": (lambda t: set_(t, input_ids=[]), "has 0 inputs"),
    "a constant that is not there": (lambda t: set_(values(t, schema.VkTensor)[1], constant_id=5), "names constant 5"),
    "a larger constant": (lambda t: set_(values(t, schema.VkTensor)[1], dims=[3]), "has 8 bytes instead of 12"),
    "unknown data": (lambda t: set_(t.constants[0], named_key="none"), "has no data 'none'"),
    "data outside": (lambda t: set_(t.constants[0], offset=9, named_key=None), "has 8 bytes from 9 on, of 0"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_tables_that_do_not_fit_together_are_refused(name: str) -> None:
    edit, words = DAMAGE[name]
    with pytest.raises(FormatError) as caught:
        read_graph(changed(edit))
    assert words in str(caught.value)


def test_a_list_inside_a_list_is_refused() -> None:
    def nest(tables: schema.VkGraph) -> None:
        assert tables.values is not None and tables.chain is not None
        tables.values.append(schema.VkValue(value=schema.ValueList(items=[len(tables.values)])))
        tables.chain[0].args = [len(tables.values) - 1, *(tables.chain[0].args or [])]

    with pytest.raises(FormatError, match="is a list inside a list"):
        read_graph(changed(nest))


@pytest.mark.parametrize("size", [0, 10, 31, 40])
def test_a_blob_that_was_cut_off_is_refused(size: int) -> None:
    graph = two_calls()
    with pytest.raises(FormatError):
        read_graph(payload(graph, serialize(graph).blob[:size]))
