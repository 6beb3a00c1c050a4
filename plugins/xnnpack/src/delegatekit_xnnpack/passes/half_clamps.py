"""Removes the conversions around clamps of float16 numbers."""

from __future__ import annotations

from ..ir import operators as ops
from ..ir.graph import Graph, Node, Value
from ..ir.types import DataType
from .unread import drop_unread


def clamp_in_half_precision(graph: Graph) -> None:
    """Clamp float16 numbers directly if the node before can do it, instead of between two conversions.

    float16 clamps turn NaN into the lower bound.
    """
    readers = graph.users()

    def only_reader(value: Value) -> Node | None:
        found = readers.get(value, [])
        return found[0] if len(found) == 1 else None

    for node in graph.nodes:
        if not isinstance(node.operator, ops.Clamp) or node.output.datatype is not DataType.FLOAT32:
            continue
        widens, narrows = node.inputs[0].producer, only_reader(node.output)
        if widens is None or narrows is None or only_reader(node.inputs[0]) is None:
            continue
        source = widens.inputs[0]
        alike = DataType.FLOAT16 is source.datatype is narrows.output.datatype
        if not alike or source.producer is None or not source.producer.operator.fuses_clamp or not only_reader(source):
            continue
        node.inputs, node.output = (source,), narrows.output
        node.output.producer = node
        narrows.output = Value(node.output.shape, DataType.FLOAT16, producer=narrows)
    drop_unread(graph)
