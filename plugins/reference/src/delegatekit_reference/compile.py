"""Compiles a partition to a blob: each node becomes a step, each constant named data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch.fx import Node

from delegatekit_api import Call, LoweringError, NamedData, PartitionProgram, PreprocessResult, ProgramView
from delegatekit_toolkit.building import DebugHandles
from delegatekit_toolkit.content import ConstantStore
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.symbols import SizeBounds

from .blob import write_blob
from .ir.graph import Constant, Graph, Step
from .operators import write_step
from .support import TABLE

#: Constants are aligned as in torch's own memory: some libraries round differently otherwise.
_ALIGNMENT = 64


@dataclass(frozen=True)
class CompiledGraph:
    """A graph, the data of its constants, and the debug handles of its steps by position."""

    graph: Graph
    named_data: tuple[NamedData, ...]
    debug_handles: Mapping[int | str, tuple[int, ...]]


def compile_partition(partition: PartitionProgram) -> PreprocessResult:
    """The delegate of a partition. Raises LoweringError for what a blob cannot represent, naming the node."""
    compiled = build_graph(partition.view)
    return PreprocessResult(
        write_blob(compiled.graph), named_data=compiled.named_data, debug_handle_map=compiled.debug_handles
    )


def build_graph(view: ProgramView) -> CompiledGraph:
    """Write a partition as a graph. Functions on sizes are steps, too: the runtime computes them in every call."""
    bounds, store, handles = SizeBounds(), ConstantStore(alignment=_ALIGNMENT), DebugHandles()
    inputs = tuple(bounds.type_of(view.operand(node)) for node in view.inputs)
    constants = []
    for tensor in view.constants.values():
        key = store.add(tensor) if tensor.numel() else ""
        constants.append(Constant(dtype_name(tensor.dtype), tuple(tensor.shape), key))
    numbers: dict[Node, int] = {node: index for index, node in enumerate((*view.inputs, *view.constants))}
    steps: list[Step] = []
    for node in view.graph.nodes:
        if node.op == "call_function":
            call = Call(node, view)
            handles.add(len(steps), call.debug_handle)
            entry = TABLE.get(call.operator)
            steps.append(write_step(numbers, call) if entry is None else entry.lower(numbers, call))
            numbers[node] = len(numbers)
    outputs = []
    for output in view.outputs:
        if output is None:
            raise LoweringError("returns something that is not computed", where="partition for the reference backend")
        outputs.append(output)
    results = tuple(bounds.type_of(view.operand(node)) for node in outputs)
    graph = Graph(inputs, tuple(constants), tuple(steps), tuple(numbers[node] for node in outputs), results)
    return CompiledGraph(graph, store.named_data, handles.mapping)
