"""Builds the execution plan of one method: inputs, state, steps, outputs, and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from ..lowering import LoweredMethod
from ..pte import schema
from .arena import PlacedValue, PlannedSpace
from .instructions import InstructionList
from .placing import place_values
from .reuse import Reuse
from .shared import Shared
from .state import State
from .steps import StepWriter
from .storage import FOREVER
from .values import Values
from .writer import Writer


@dataclass(frozen=True)
class MethodPlan:
    """A method's plan, the debug handles of its instructions in their order, and its memory, space by space and value
    by value."""

    plan: schema.ExecutionPlan
    handles: tuple[tuple[int, ...], ...]
    spaces: tuple[PlannedSpace, ...]
    placed: tuple[PlacedValue, ...]


def plan_method(name: str, method: LoweredMethod, shared: Shared) -> MethodPlan:
    """The finished plan. Memory is planned here, constants and blobs go to the data shared by the methods.

    Raises UnsupportedError, with the user's source line, for an operator that the runtime cannot run, and
    LoweringError for memory that does not fit.
    """
    edge, memory = method.edge, shared.spaces.options
    values = Values(edge.constants, shared)
    code = InstructionList(stack_traces=shared.stack_traces)
    writer = Writer(values, code, Reuse(in_place=memory.in_place, views=memory.views, alignment=memory.alignment))
    state = State(method, writer)

    inputs = [_input(values, node) for node in edge.inputs]
    state.write_inputs(shared)
    for node in edge.inputs:
        if "dim_order" in node.meta and node.users:
            _reorder(writer, node)
    StepWriter(writer, shared, method, state.in_place).write(method)
    updates = state.updates()
    outputs = [_output(writer, state.before_write_back(item)) for item in edge.outputs]
    state.write_back(updates)
    sizes, spaces, placed = place_values(name, writer, edge.outputs, shared.spaces, method.overread_bytes)

    plan = schema.ExecutionPlan(
        name=name,
        container_meta_type=schema.ContainerMetadata(edge.input_structure, edge.output_structure),
        values=values.table,
        inputs=inputs,
        outputs=outputs,
        chains=[code.chain()],
        operators=code.operators,
        delegates=code.delegates,
        non_const_buffer_sizes=sizes,
    )
    return MethodPlan(plan, tuple(code.handles), spaces, placed)


def _input(values: Values, node: Node) -> int:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        return values.literal(value)
    order = node.meta.get("dim_order")
    index = values.planned(node if order is None else _given(node), value)
    if order is not None:
        values.tensor(index).dim_order = bytes(order)
    return index


def _given(node: Node) -> tuple[Node, str]:
    """The key of an input in the caller's order of dimensions."""
    return node, "as given"


def _reorder(writer: Writer, node: Node) -> None:
    """Write the copy of an input in the order that all values of the program have."""
    writer.begin()
    values, value = writer.values, node.meta["val"]
    source, target = values.used(_given(node)), values.planned(node, value)
    order = values.list(schema.IntList, [values.literal(axis) for axis in range(value.dim())])
    arguments = [source, values.literal(False), order, target, target]
    writer.code.kernel("dim_order_ops::_to_dim_order_copy", "out", arguments)


def _output(writer: Writer, item: Any) -> int:
    """The index of an output: a node, the key of a kept value, or a literal."""
    if not isinstance(item, Node) and item not in writer.values:
        return writer.values.literal(item)
    writer.begin()
    index = writer.values.used(item)
    home = writer.values.storage(item)
    if home is not None:
        home.last = FOREVER
    return index
