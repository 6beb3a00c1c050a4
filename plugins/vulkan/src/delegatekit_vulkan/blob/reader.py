"""Reads a blob as a graph, ours or stock's, and checks all of it before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from delegatekit_api import DelegatePayload, FormatError, TensorSpec
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.content import shown
from delegatekit_toolkit.dataflow import element_count, section
from delegatekit_toolkit.dtypes import dtype_of

from ..ir.graph import Argument, Graph, Node, SymInt, Tensor
from ..ir.types import BUFFER_RANK, DATA_TYPES, NARROWED, DataType, Layout, Storage
from . import schema
from .envelope import HEADER, IDENTIFIER, MAGIC, VERSION

_WHERE: Final = "Vulkan blob"


def parse(blob: bytes | bytearray | memoryview) -> tuple[schema.VkGraph, memoryview]:
    """The tables of a blob and its section of constants, after checking header and structure.

    Raises FormatError for regions outside the blob, a wrong magic, identifier or version, or a malformed flatbuffer.
    """
    view = memoryview(blob).cast("B")
    if len(view) < HEADER.size:
        raise FormatError(f"{len(view)} bytes are too few for the header", where=_WHERE)
    magic, length, start, size, constants, constants_size = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise FormatError(f"magic is {magic!r}, not {MAGIC!r}", where=f"{_WHERE}, offset 4")
    if length != HEADER.size or start < HEADER.size:
        raise FormatError(f"the header has {length} bytes, the flatbuffer begins at {start}", where=_WHERE)
    flatbuffer = section(view, start, size, f"{_WHERE}, flatbuffer")
    data = section(view, constants, constants_size, f"{_WHERE}, section of constants")
    if constants_size and constants < start + size:
        raise FormatError("the section of constants lies over the flatbuffer", where=_WHERE)
    graph = fb.parse(schema.VkGraph, flatbuffer, (IDENTIFIER,))
    if graph.version != VERSION:
        raise FormatError(f"has version {graph.version!r:.20}: {VERSION} is known", where=_WHERE)
    return graph, data


def read_graph(payload: DelegatePayload) -> Graph:
    """The graph of a delegate. Constants are views of the file's own memory.

    Raises FormatError for values without or with two sources, sizes and types that contradict each other, constants
    whose data is missing or has another size, and inputs and outputs that differ from the caller's.
    """
    tables, data = parse(payload.blob)
    values = _Values(tables, data, payload.named_data)
    graph = Graph(
        [values.tensor(number, f"input {index}") for index, number in enumerate(tables.input_ids or [])],
        [values.tensor(number, f"output {index}") for index, number in enumerate(tables.output_ids or [])],
        [_node(call, index, values) for index, call in enumerate(tables.chain or [])],
    )
    _check_caller("input", graph.inputs, payload.inputs)
    _check_caller("output", graph.outputs, payload.outputs)
    graph.check_flow(_WHERE)
    return graph


def _check_caller(what: str, tensors: list[Tensor], specs: tuple[TensorSpec, ...]) -> None:
    if len(tensors) != len(specs):
        raise FormatError(f"has {len(tensors)} {what}s, the program calls it with {len(specs)}", where=_WHERE)
    for index, (tensor, spec) in enumerate(zip(tensors, specs, strict=True)):
        datatype = DATA_TYPES.get(dtype_of(spec.dtype, f"{what} {index}"))
        wanted = NARROWED.get(datatype, datatype) if datatype is not None else None
        if tensor.data is not None and what == "input":
            raise FormatError(f"input {index} is a constant", where=_WHERE)
        if tensor.staging != wanted or tensor.sizes != spec.shape:
            found = f"{tensor.staging.name} {tensor.sizes}"
            raise FormatError(f"{what} {index} is {found}, in the program {spec.dtype} {spec.shape}", where=_WHERE)


def _node(call: schema.OperatorCall, index: int, values: _Values) -> Node:
    where = f"{_WHERE}, call {index}"
    numbers = call.args or []
    if not call.name or not numbers:
        raise FormatError("has no operator or no arguments", where=where)
    where = f"{where} ({call.name:.60})"
    arguments = [values.argument(number, where) for number in numbers]
    result = arguments.pop()
    listed = result if isinstance(result, tuple) else (result,)
    if not listed or not all(isinstance(item, Tensor | SymInt) for item in listed):
        raise FormatError("its result is not a tensor", where=where)
    return Node(call.name, arguments, result)  # type: ignore[arg-type]


class _Values:
    """The table of values; each tensor becomes one object."""

    def __init__(self, tables: schema.VkGraph, section: memoryview, named_data: Mapping[str, memoryview]) -> None:
        self._tables = tables.values or []
        self._constants = tables.constants or []
        self._section = section
        self._named_data = named_data
        self._made: dict[int, Argument] = {}

    def tensor(self, number: int, where: str) -> Tensor:
        """The tensor at a position."""
        found = self.argument(number, f"{_WHERE}, {where}")
        if not isinstance(found, Tensor):
            raise FormatError("is not a tensor", where=f"{_WHERE}, {where}")
        return found

    def argument(self, number: int, where: str, *, nested: bool = False) -> Argument:
        """The value at a position."""
        if number in self._made:
            return self._made[number]
        if not 0 <= number < len(self._tables):
            raise FormatError(f"names value {number} of {len(self._tables)}", where=where)
        table = self._tables[number].value
        place = f"{_WHERE}, value {number}"
        if isinstance(table, schema.ValueList):
            if nested:
                raise FormatError("is a list inside a list", where=place)
            made: Argument = tuple(self.argument(item, place, nested=True) for item in table.items or [])
        else:
            made = self._value(table, place)
        self._made[number] = made
        return made

    def _value(self, table: Any, where: str) -> Argument:
        match table:
            case schema.Null():
                return None
            case schema.Int(int_val=value) | schema.Double(double_val=value) | schema.Bool(bool_val=value):
                return value
            case schema.String(string_val=value):
                return value or ""
            case schema.IntList(items=items) | schema.DoubleList(items=items) | schema.BoolList(items=items):
                return tuple(items or ())
            case schema.SymInt():
                return SymInt()
            case schema.VkTensor():
                return self._tensor(table, where)
        raise FormatError("has no value", where=where)

    def _tensor(self, table: schema.VkTensor, where: str) -> Tensor:
        try:
            datatype = DataType(table.datatype)
            staging = datatype if table.staging_datatype == schema.UNSET else DataType(table.staging_datatype)
            storage, layout = Storage(table.storage_type), Layout(table.memory_layout)
        except ValueError as error:
            raise FormatError(f"has an unknown type or layout: {error}", where=where) from None
        if datatype in NARROWED or staging in NARROWED:
            raise FormatError(f"is {datatype.name}: the delegate computes in 32 bits", where=where)
        shape = tuple(table.dims or ())
        if len(shape) > BUFFER_RANK:
            raise FormatError(f"has {len(shape)} axes: {BUFFER_RANK} is the maximum", where=where)
        element_count(shape, where, item_bytes=4, least=0)
        tensor = Tensor(shape, datatype, staging, None, storage, layout, table.mem_obj_id)
        if table.constant_id >= 0:
            tensor.data = self._data(table.constant_id, tensor, where)
        return tensor

    def _data(self, index: int, tensor: Tensor, where: str) -> torch.Tensor:
        if index >= len(self._constants):
            raise FormatError(f"names constant {index} of {len(self._constants)}", where=where)
        entry = self._constants[index]
        size = element_count(tensor.sizes, where, least=0) * tensor.datatype.bytes
        if not size:
            return torch.empty(tensor.sizes, dtype=tensor.datatype.torch)
        if entry.named_key and entry.offset == schema.NAMED:
            data = self._named_data.get(entry.named_key)
            if data is None:
                raise FormatError(f"the file has no data {entry.named_key!r:.80}", where=where)
        else:
            data = section(self._section, entry.offset, entry.length, where)
        if data.nbytes != size:
            raise FormatError(f"its data has {data.nbytes} bytes instead of {size}", where=where)
        return shown(data, tensor.datatype.torch, tensor.sizes)
