"""Writes the blob: a graph in, the blob, its named data and its debug handles out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from delegatekit_api import LoweringError, NamedData
from delegatekit_toolkit import flatbuffer as fb
from delegatekit_toolkit.content import ConstantStore

from ..ir.graph import Argument, Graph, Node, SymInt, Tensor
from . import schema
from .envelope import ALIGNMENT, FLATBUFFER_OFFSET, HEADER, IDENTIFIER, MAGIC, VERSION


@dataclass(frozen=True)
class SerializedGraph:
    """A blob, the data that it refers to, and the debug handles of its calls by position."""

    blob: bytes
    named_data: tuple[NamedData, ...]
    debug_handles: Mapping[int | str, tuple[int, ...]]


def serialize(graph: Graph) -> SerializedGraph:
    """Write a graph, after `Graph.verify`. The same graph gives the same bytes."""
    graph.verify()
    values = _Values()
    inputs = [values.number(tensor) for tensor in graph.inputs]
    chain = [_call(node, index, values) for index, node in enumerate(graph.nodes)]
    root = schema.VkGraph(
        version=VERSION,
        chain=chain,
        values=[schema.VkValue(value=table) for table in values.tables],
        input_ids=inputs,
        output_ids=[values.number(tensor) for tensor in graph.outputs],
        constants=values.constants,
        shaders=[],
    )
    flatbuffer = fb.serialize(root, IDENTIFIER)
    body = flatbuffer + bytes(-len(flatbuffer) % ALIGNMENT)
    header = HEADER.pack(MAGIC, HEADER.size, FLATBUFFER_OFFSET, len(flatbuffer), FLATBUFFER_OFFSET + len(body), 0)
    return SerializedGraph(
        header.ljust(FLATBUFFER_OFFSET, b"\0") + body,
        values.store.named_data,
        {index: node.debug_handles for index, node in enumerate(graph.nodes) if node.debug_handles},
    )


def _call(node: Node, index: int, values: _Values) -> schema.OperatorCall:
    """The result comes last, a list if the operator has several."""
    arguments = [values.number(argument) for argument in (*node.arguments, node.result)]
    return schema.OperatorCall(node_id=index, name=node.operator, args=arguments)


class _Values:
    """The table of values: tensors, and numbers, each once."""

    def __init__(self) -> None:
        self.tables: list[Any] = []
        self.constants: list[schema.VkBytes] = []
        self.store = ConstantStore()
        self._numbers: dict[Hashable, int] = {}

    def number(self, argument: Argument) -> int:
        """The position of an argument's value."""
        if isinstance(argument, tuple):
            items = [self.number(item) for item in argument] if _has_values(argument) else None
            key: Hashable = ("list", tuple(items)) if items is not None else ("list", _typed(argument))
            return self._once(key, lambda: _list_table(argument, items))
        if isinstance(argument, Tensor | SymInt):
            return self._once(argument, lambda: self._table(argument))
        # 1, 1.0 and True are equal, but different values.
        return self._once(_typed((argument,)), lambda: _scalar_table(argument))

    def _once(self, key: Hashable, make: Any) -> int:
        found = self._numbers.get(key)
        if found is None:
            table = make()
            found = self._numbers[key] = len(self.tables)
            self.tables.append(table)
        return found

    def _table(self, value: Tensor | SymInt) -> Any:
        if isinstance(value, SymInt):
            return schema.SymInt()
        return schema.VkTensor(
            datatype=int(value.datatype),
            dims=list(value.sizes),
            constant_id=-1 if value.data is None else self._constant(value),
            mem_obj_id=value.memory,
            storage_type=int(value.storage),
            memory_layout=int(value.layout),
            staging_datatype=int(value.staging),
        )

    def _constant(self, value: Tensor) -> int:
        data = value.data
        assert data is not None
        size = data.numel() * data.element_size()
        key = self.store.add(data) if size else None
        self.constants.append(schema.VkBytes(offset=schema.NAMED if size else 0, length=size, named_key=key))
        return len(self.constants) - 1


def _has_values(items: tuple[Argument, ...]) -> bool:
    """True if a list must be one of positions, because of a tensor, a computed number or a None in it."""
    return any(isinstance(item, Tensor | SymInt) or item is None for item in items)


def _typed(items: tuple[Any, ...]) -> tuple[tuple[str, Any], ...]:
    return tuple((type(item).__name__, repr(item)) for item in items)


def _scalar_table(value: Any) -> Any:
    if value is None:
        return schema.Null()
    if isinstance(value, bool):
        return schema.Bool(bool_val=value)
    if isinstance(value, int):
        return schema.Int(int_val=value)
    if isinstance(value, float):
        return schema.Double(double_val=value)
    if isinstance(value, str):
        return schema.String(string_val=value)
    raise LoweringError("has no representation in the blob", where=repr(value))


def _list_table(items: tuple[Any, ...], numbers: list[int] | None) -> Any:
    if numbers is not None:
        return schema.ValueList(items=numbers)
    if all(isinstance(item, int) for item in items):
        return schema.IntList(items=list(items))
    raise LoweringError("has no representation in the blob", where=repr(items))
