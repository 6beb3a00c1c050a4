"""A TOSA file as a graph, with all checks: one region with one block, the operators of `operators`."""

from __future__ import annotations

import math
from dataclasses import fields
from enum import IntEnum
from typing import Any, Final

from delegatekit_api import FormatError, LoweringError
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.dataflow import element_count

from . import schema
from .graph import Graph
from .operators import OPERATORS, Clamp, Operator
from .tensors import Operation, Tensor
from .types import Array, DType, packed_size, unpack

#: More axes than any operator accepts.
_MAX_RANK: Final = 8


def read(data: bytes | bytearray | memoryview) -> Graph:
    """Read a TOSA 1.x file. Names and the order of everything are kept; equal constants are not merged.

    Raises FormatError for anything else, or for an operator that is not in `operators`.
    """
    root = fb.parse(schema.TosaGraph, data, (schema.IDENTIFIER,))
    version = root.version
    if version is None or version.major != 1:
        raise FormatError(
            f"version {version.major if version else 'unknown'} of TOSA, not 1", where="TosaGraph.version"
        )
    blocks = [block for region in root.regions or () for block in region.blocks or ()]
    if len(blocks) != 1:
        raise FormatError(f"has {len(blocks)} blocks, not one", where="TosaGraph.regions")
    return _Reader(blocks[0]).graph()


def result_names(data: bytes | bytearray | memoryview) -> list[str]:
    """The name of each operator's result, in the file's order, constants included. Raises FormatError."""
    root = fb.parse(schema.TosaGraph, data, (schema.IDENTIFIER,))
    operators = (
        item for region in root.regions or () for block in region.blocks or () for item in block.operators or ()
    )
    return [next(iter(operator.outputs or ()), "") for operator in operators]


class _Reader:
    def __init__(self, block: schema.TosaBasicBlock) -> None:
        self.block = block
        self.tensors: dict[str, Tensor] = {}
        for stored in block.tensors or ():
            self.define(_tensor(stored))
        for shape in block.shapes or ():
            self.define(_shape(shape))

    def define(self, tensor: Tensor) -> None:
        if tensor.name in self.tensors:
            raise FormatError("is defined twice", where=f"tensor {tensor.name}")
        self.tensors[tensor.name] = tensor

    def graph(self) -> Graph:
        graph = Graph(self.block.name or "main")
        for name in self.block.inputs or ():
            graph.inputs.append(self.tensor(name, "inputs"))
        for stored in self.block.operators or ():
            self.operation(stored, graph)
        for name in self.block.outputs or ():
            graph.output(self.tensor(name, "outputs"))
        try:
            graph.verify_order()
        except LoweringError as error:
            raise FormatError(error.what, where=error.where) from error
        return graph

    def tensor(self, name: str, where: str) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise FormatError(f"names the tensor {name!r}, which does not exist", where=where)
        return tensor

    def operation(self, stored: schema.TosaOperator, graph: Graph) -> None:
        where = f"operator {stored.op} ({', '.join(stored.outputs or ())})"
        if not stored.outputs or len(stored.outputs) != 1:
            raise FormatError("does not have one result", where=where)
        output = self.tensor(stored.outputs[0], where)
        if stored.op in (schema.CONST, schema.CONST_SHAPE):
            if output.data is None:
                raise FormatError("is a constant without data", where=where)
            graph.constants.append(output)
            return
        if output.data is not None:
            raise FormatError("writes a tensor that has data", where=where)
        if stored.op not in OPERATORS:
            raise FormatError("is not one of the supported operators", where=where)
        inputs = tuple(self.tensor(name, where) for name in stored.inputs or ())
        operator = _operator(OPERATORS[stored.op], stored.attribute, output.dtype, where)
        graph.operations.append(Operation(operator, inputs, output))


def _tensor(stored: schema.TosaTensor) -> Tensor:
    name = stored.name or ""
    where = f"tensor {name}"
    if stored.type not in DType.__members__.values() or stored.type == DType.SHAPE:
        raise FormatError(f"has the element type {stored.type}, which is not supported", where=where)
    shape = tuple(stored.shape or ())
    if stored.is_unranked or len(shape) > _MAX_RANK:
        raise FormatError(f"has the shape {list(shape)}", where=where)
    element_count(shape, where, item_bytes=8)
    dtype = DType(stored.type)
    # Stock's writer gives all tensors data, mostly empty.
    return Tensor(name, shape, dtype, _data(stored.data, shape, dtype, where) if stored.data else None)


def _shape(stored: schema.TosaShape) -> Tensor:
    name = stored.name or ""
    data = _data(stored.data or b"", (stored.rank,), DType.SHAPE, f"shape {name}")
    return Tensor(name, (stored.rank,), DType.SHAPE, data)


def _data(data: bytes, shape: tuple[int, ...], dtype: DType, where: str) -> Array:
    count = math.prod(shape)
    size = packed_size(count, dtype)
    # More is allowed: stock writes the zero points of all channels into a tensor of one.
    if len(data) < size:
        raise FormatError(f"has {len(data)} bytes, not {size}", where=where)
    return unpack(data[:size], count, dtype).reshape(shape)


def _operator(operator: type[Operator], stored: fb.Table | None, dtype: DType, where: str) -> Operator:
    if not isinstance(stored, schema.ATTRIBUTES[operator]):
        raise FormatError(f"has no attributes of {operator.name}", where=where)
    values: dict[str, Any] = {}
    for item in fields(operator):
        value = getattr(stored, item.name)
        hint = schema.HINTS[operator][item.name]
        if operator is Clamp and item.name in ("minimum", "maximum"):
            value = _data(value or b"", (1,), dtype, where).item()
        elif isinstance(hint, type) and issubclass(hint, IntEnum):
            if value not in hint.__members__.values():
                raise FormatError(f"{item.name} is {value}, which is not supported", where=where)
            value = hint(value)
        elif not isinstance(value, bool | int):
            value = _sizes(value, hint, item.name, where)
        values[item.name] = value
    return operator(**values)


def _sizes(value: list[int] | None, hint: Any, name: str, where: str) -> tuple[int, ...]:
    """A list as the tuple of the field; TRANSPOSE's may have any length."""
    sizes = tuple(value or ())
    wanted = hint.__args__
    if wanted[-1] is not Ellipsis and len(sizes) != len(wanted):
        raise FormatError(f"{name} has {len(sizes)} numbers, not {len(wanted)}", where=where)
    return sizes
