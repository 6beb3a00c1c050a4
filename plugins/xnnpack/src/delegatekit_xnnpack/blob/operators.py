"""The nodes of a blob in readable form. The data of constants is not read: it may be in another file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from delegatekit_api.blobs import BlobOperator

from ..ir.operators import Padding
from . import schema
from .nodes import BlobNode
from .reader import parse, program_of
from .values import BlobValue, Constants

#: Attributes that are omitted at these default values.
_USUAL: Final = {"dilation": (1, 1), "adjustment": (0, 0), "groups": 1}


def operators(blob: memoryview) -> list[BlobOperator]:
    """The nodes in order, of our blobs and stock's. Raises FormatError for damage."""
    graph = parse(blob)
    program = program_of(graph, _Unseen([], memoryview(b""), {}))
    return [_told(node, table, program.values) for node, table in zip(program.nodes, graph.xnodes or (), strict=True)]


class _Unseen(Constants):
    """Constants whose data is not available."""

    def check(self, index: int, needed: int, what: str, where: str) -> None:
        """Nothing to compare with."""


def _told(node: BlobNode, table: schema.XNode, values: Mapping[int, BlobValue]) -> BlobOperator:
    results = [values[number] for number in node.outputs]
    facts = {"result": ", ".join(map(_type, results)), **dict(_attributes(node))}
    if node.operator.weighted:
        facts["weight"] = _type(values[node.inputs[1]])
    if table.output_min_max is not None:
        facts["clamp"] = f"{table.output_min_max.output_min:g} to {table.output_min_max.output_max:g}"
    reads = dict.fromkeys(_name(values[number]) for number in node.inputs)
    return BlobOperator(type(table.xnode_union).__name__, tuple(reads), tuple(map(_name, results)), facts)


def _name(value: BlobValue) -> str:
    if value.argument is not None:
        return f"{'output' if value.is_output else 'input'} {value.argument}"
    return f"{'constant' if value.is_constant else 'value'} {value.identifier}"


def _type(value: BlobValue) -> str:
    return f"{value.datatype.name.lower()}{list(value.shape)}"


def _attributes(node: BlobNode) -> Iterator[tuple[str, str]]:
    for field in fields(node.operator):
        value: Any = getattr(node.operator, field.name)
        if field.name in ("kind", "format", "group_inputs", "group_outputs") or _USUAL.get(field.name) == value:
            continue
        if isinstance(value, Padding):
            value = (value.top, value.right, value.bottom, value.left)
        if value is False or (field.name == "padding" and not any(value)):
            continue
        pair = field.name in ("kernel", "stride", "dilation")
        yield field.name, "x".join(map(str, value)) if pair else str(list(value) if isinstance(value, tuple) else value)
