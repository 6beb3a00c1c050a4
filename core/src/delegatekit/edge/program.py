"""The edge program of one method: the plain data type of all later stages."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from delegatekit_api import LoweringError, MutableState, ProgramView
from delegatekit_api.nodes import describe_node

from .constants import Constants
from .sizes import is_size

#: Environment variable that turns the checks at stage borders on (`--debug` and the tests set it).
VERIFY: Final = "DELEGATEKIT_VERIFY"


@dataclass(frozen=True)
class EdgeMethod:
    """One method in the edge dialect.

    Values are dense and contiguous; nothing aliases or mutates. Weights are references to the exported program's
    own tensors. Node metadata: "val" (fake value, or a number computed in the graph), "stack_trace",
    "nn_module_stack", "debug_handle" (position of the exported node it came from, counted from 1) and
    "source_operator" (that node's operator), and "fqn" on the placeholders of parameters and buffers. A layer with a
    batch norm folded into it takes the layer's position, with the debug handle of the norm, whose value it has.
    """

    name: str
    graph: Graph
    #: Placeholder -> value known at lowering time.
    constants: Constants[Node]
    #: Placeholder -> buffer that the method updates.
    buffers: dict[Node, MutableState]
    #: Placeholders of the caller's inputs, in calling order.
    inputs: tuple[Node, ...]
    #: The results of the method, in order: nodes or literals (int, float, bool, str, None).
    outputs: tuple[Any, ...]
    #: Structure of inputs and outputs as pytree JSON; empty when it cannot be written.
    input_structure: str = ""
    output_structure: str = ""
    #: Call of a control flow operator -> its graphs. Their inputs are the call's operands, in order.
    regions: dict[Node, tuple[EdgeMethod, ...]] = field(default_factory=dict)
    #: Names of the exported call's parameters: positional ones, then keywords.
    parameters: tuple[str, ...] = ()

    @cached_property
    def view(self) -> ProgramView:
        """The backends' view of the method."""
        outputs = tuple(item if isinstance(item, Node) else None for item in self.outputs)
        return ProgramView(self.graph, self.constants, self.inputs, outputs, self.name, self.buffers)

    def verified(self) -> EdgeMethod:
        """The method itself, checked by `verify` if the environment variable DELEGATEKIT_VERIFY is set."""
        if os.environ.get(VERIFY):
            self.verify()
        return self

    def verify(self) -> None:
        """Check the invariants of later stages; raises LoweringError naming the node and the violated rule."""
        seen: set[Node] = set()
        for node in self.graph.nodes:
            for argument in node.all_input_nodes:
                if argument not in seen:
                    raise LoweringError(f"uses {argument.name} before it is defined", where=describe_node(node))
            seen.add(node)
            if node.op == "output":
                continue
            if "val" not in node.meta:
                raise LoweringError("has no value metadata", where=describe_node(node))
            if node.op == "placeholder":
                if node not in self.constants and node not in self.buffers and node not in self.inputs:
                    raise LoweringError("is neither input, constant nor buffer", where=describe_node(node))
            elif node.op != "call_function":
                raise LoweringError(f"is a {node.op}, not an operator call", where=describe_node(node))
            elif isinstance(node.target, torch._ops.OpOverload):
                schema = node.target._schema
                if schema.is_mutable or any(result.alias_info is not None for result in schema.returns):
                    raise LoweringError("mutates or returns an alias", where=describe_node(node))
            elif isinstance(node.target, torch._ops.HigherOrderOperator):
                for region in self.regions.get(node, ()):
                    region.verify()
                if node not in self.regions:
                    raise LoweringError("is control flow without its graphs", where=describe_node(node))
            elif node.target is not operator.getitem and not is_size(node.meta["val"]):
                raise LoweringError("is a Python function that does not compute a size", where=describe_node(node))


def producer(node: Any) -> Any:
    """The operator whose result a getitem picks; any other argument itself."""
    while isinstance(node, Node) and node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def shared_buffers(methods: Iterable[EdgeMethod]) -> frozenset[str]:
    """Names of the buffers that several methods update and that share one tensor in the module."""
    found: dict[str, list[torch.Tensor]] = {}
    for method in methods:
        for buffer in method.buffers.values():
            found.setdefault(buffer.name, []).append(buffer.initial)
    return frozenset(
        name
        for name, tensors in found.items()
        if len(tensors) > 1 and len({tensor.data_ptr() for tensor in tensors}) == 1
    )
