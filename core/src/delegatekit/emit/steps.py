"""Writes the steps of a method, and of the graphs of its control flow, one after the other."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node

from ..edge.sizes import is_size_node
from ..lowering import Delegate, LoweredMethod, Replacement
from ..pte import schema
from .control_flow import write_region_call
from .instructions import NOWHERE, Origin
from .operators import changing, is_view, write_operator, write_view
from .replacements import write_replacement
from .shared import Shared
from .sizes import needed_sizes, write_size
from .writer import Writer


class StepWriter:
    """Writes steps. `in_place` maps the new value of a mutable buffer to the buffer that a kernel updates with it."""

    def __init__(self, writer: Writer, shared: Shared, method: LoweredMethod, in_place: Mapping[Node, Node]) -> None:
        self._writer = writer
        self._shared = shared
        self._in_place = in_place
        self._returned = {item for item in method.edge.outputs if isinstance(item, Node)}

    def write(self, method: LoweredMethod) -> None:
        """Write the steps of the method, or of a graph that was entered."""
        writer, code = self._writer, self._writer.code
        sizes = self._needed_sizes(method)
        for step in method.steps:
            writer.begin()
            if isinstance(step, Delegate):
                nodes = step.partition.nodes
                code.origin = Origin(tuple(dict.fromkeys(node.meta["debug_handle"] for node in nodes)), nodes[0])
                self._delegate_call(step)
                continue
            if isinstance(step, Replacement):
                write_replacement(writer, step)
                continue
            code.origin = Origin((step.meta["debug_handle"],), step)
            if step in method.regions:
                write_region_call(writer, step, method.regions[step], self._enter)
            elif not is_size_node(step):
                self._operator_call(step)
            elif step in sizes:
                write_size(writer, step)
        code.origin = NOWHERE

    def _enter(self, region: LoweredMethod, operands: Sequence[int]) -> None:
        """Write a graph's instructions, its inputs being the values `operands`."""
        self._writer.values.enter(region.edge.inputs, operands, region.edge.constants)
        around = self._writer.code.origin
        self.write(region)
        self._writer.code.origin = around

    def _operator_call(self, node: Node) -> None:
        if node.target is operator.getitem:
            self._writer.values.same(node, (node.args[0], node.args[1]))
        elif self._is_elided(node):
            write_view(self._writer, node)
        else:
            write_operator(self._writer, node, self._in_place.get(node))

    def _is_elided(self, node: Node) -> bool:
        """True if a node's value is in the memory of its operand."""
        return is_view(node) and not self._writer.values.is_constant(node.args[0]) and node not in self._returned

    def _needed_sizes(self, method: LoweredMethod) -> set[Node]:
        """The size nodes that are used outside delegates."""
        users: list[Any] = list(method.edge.outputs)
        for step in method.steps:
            if isinstance(step, Node) and not is_size_node(step) and not (self._is_elided(step) and changing(step) < 2):
                users.extend(step.all_input_nodes)
        return needed_sizes(users)

    def _delegate_call(self, delegate: Delegate) -> None:
        values = self._writer.values
        inputs = [values.used(node) for node in delegate.partition.inputs]
        outputs = [values.planned(key, value) for key, value in delegate.results]
        table = schema.BackendDelegate(
            id=delegate.chosen.backend.description.delegate_id,
            processed=schema.BackendDelegateDataReference(schema.DataLocation.SEGMENT, len(self._shared.blobs)),
            compile_specs=[schema.CompileSpec(spec.key, spec.value) for spec in delegate.compile_specs],
        )
        self._shared.blobs.append(delegate.blob)
        self._shared.named_data.extend(delegate.named_data)
        self._writer.code.delegate(table, delegate.chosen.backend.name, [*inputs, *outputs])
