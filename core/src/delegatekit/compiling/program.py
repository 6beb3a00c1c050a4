"""Builds the program for a backend's compiler from a graph and the values of its placeholders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

from ..edge.constants import Constants


def assemble(
    graph: Graph,
    constants: Mapping[Node, torch.Tensor],
    state: Mapping[Node, MutableState],
    inputs: tuple[Node, ...],
    outputs: tuple[Node, ...],
    method: str,
    index: int,
) -> PartitionProgram:
    """The program of a graph that has no output node yet; its placeholders are constants, buffers, inputs, in order."""
    graph.output((*(known.updated for known in state.values()), *outputs))
    # Nothing is computed before the backend reads it; from then on an address identifies one tensor.
    kept = Constants(constants).keeping()
    by_name: Any = kept.renamed({node.name: node for node in constants})
    signature = ExportGraphSignature(
        [
            *(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name) for node in constants),
            *(
                InputSpec(InputKind.BUFFER, TensorArgument(node.name), known.name, persistent=True)
                for node, known in ((node, state[node]) for node in graph.nodes if node in state)
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
        constants=by_name,
    )
    view = ProgramView(program.graph, kept, inputs, outputs, method, dict(state))
    return PartitionProgram(program, view, index)


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
