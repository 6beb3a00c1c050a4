"""A partition as a program of its own: what a backend's compiler gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, Node
from torch.utils._pytree import tree_structure

from delegatekit_api import MutableState, PartitionProgram, ProgramView

from ..edge import EdgeMethod
from ..edge.sizes import SizeNodes
from ..partition import Partition


def partition_program(
    edge: EdgeMethod, partition: Partition, index: int = 0, method: str | None = None
) -> PartitionProgram:
    """The partition as a program of its own: constants are references, nodes keep their names and metadata.

    Sizes that change are computed from those of the partition's own inputs.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    sizes = SizeNodes(lambda target, args, value: _size_node(graph, target, args, value))

    def copy_placeholder(node: Node) -> Node:
        copy = graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
        return copy

    def inside(node: Node) -> Any:
        return copies[node] if node in copies else sizes.node(node.meta["val"])

    constants = [copy_placeholder(node) for node in partition.constants]
    buffers = [copy_placeholder(node) for node in partition.buffers]
    inputs = [copy_placeholder(node) for node in partition.inputs]
    for node in inputs:
        sizes.offer(node)
    for node in partition.nodes:
        args: Any = torch.fx.map_arg(node.args, inside)
        kwargs: Any = torch.fx.map_arg(node.kwargs, inside)
        copy = graph.create_node("call_function", node.target, args, kwargs, node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
    outputs = tuple(copies[node] for node in partition.outputs)
    state = {
        copies[node]: MutableState(known.name, known.initial, copies[known.updated])
        for node, known in edge.buffers.items()
        if node in partition.buffers
    }
    graph.output((*(known.updated for known in state.values()), *outputs))
    tensors: dict[str, Any] = {
        copy.name: edge.constants[node] for copy, node in zip(constants, partition.constants, strict=True)
    }
    signature = ExportGraphSignature(
        [
            *(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name) for node in constants),
            *(
                InputSpec(InputKind.BUFFER, TensorArgument(node.name), state[node].name, persistent=True)
                for node in buffers
            ),
            *(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node in inputs),
        ],
        [
            *(
                OutputSpec(OutputKind.BUFFER_MUTATION, TensorArgument(known.updated.name), known.name)
                for known in state.values()
            ),
            *(OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs),
        ],
    )
    program = ExportedProgram(
        torch.nn.Module(),
        graph,
        signature,
        state_dict={known.name: known.initial for known in state.values()},
        range_constraints=_ranges(inputs),
        module_call_graph=[_call_entry(len(inputs), len(outputs))],
        constants=tensors,
    )
    view = ProgramView(
        program.graph,
        {node: tensors[node.name] for node in constants},
        tuple(inputs),
        outputs,
        method or edge.name,
        state,
    )
    return PartitionProgram(program, view, index)


def _size_node(graph: Graph, target: Any, args: tuple[Any, ...], value: Any) -> Node:
    node = graph.create_node("call_function", target, args)
    node.meta["val"] = value
    return node


def _ranges(inputs: Sequence[Node]) -> dict[Any, Any]:
    """The ranges of the symbols in the inputs' sizes."""
    found: dict[Any, Any] = {}
    for node in inputs:
        for size in node.meta["val"].shape:
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.var_to_range
                found.update({symbol: known[symbol] for symbol in size.node.expr.free_symbols})
    return found


def _call_entry(inputs: int, outputs: int) -> ModuleCallEntry:
    """The calling convention: positional inputs, a tuple of outputs."""
    in_spec = tree_structure((tuple(range(inputs)), {}))
    out_spec = tree_structure(tuple(range(outputs)))
    return ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))
