"""Hands each partition to its backend: out come lowered methods, whose steps are fallback operators and delegates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

from delegatekit_api import (
    BackendOptions,
    CompileSpec,
    DelegateKitError,
    LoweringError,
    NamedData,
    PartitionProgram,
    PluginError,
    PreprocessResult,
    ProgramView,
    describe_node,
)

from .edge import EdgeMethod
from .partition import Partition, PartitionPlan

if TYPE_CHECKING:
    from .discovery import LoadedBackend


@dataclass(frozen=True)
class ChosenBackend:
    """A backend of this lowering with its options."""

    backend: LoadedBackend
    options: BackendOptions


@dataclass(frozen=True)
class Delegate:
    """One compiled partition."""

    partition: Partition
    chosen: ChosenBackend
    blob: tuple[bytes | bytearray | memoryview, ...]
    compile_specs: tuple[CompileSpec, ...]
    named_data: tuple[NamedData, ...]
    debug_handle_map: Mapping[int | str, tuple[int, ...]]

    @property
    def blob_size(self) -> int:
        """Bytes of the blob."""
        return sum(len(part) for part in self.blob)


@dataclass(frozen=True)
class LoweredMethod:
    """A method as a sequence of steps: nodes that the runtime's own operators compute, and delegates."""

    edge: EdgeMethod
    plan: PartitionPlan
    steps: tuple[Node | Delegate, ...]

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegates in execution order."""
        return tuple(step for step in self.steps if isinstance(step, Delegate))


def lower_partitions(
    method: EdgeMethod,
    plan: PartitionPlan,
    backends: Mapping[str, ChosenBackend],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> LoweredMethod:
    """Compile every partition with its backend. Raises what the backend refuses, with the partition's place."""
    counts = dict.fromkeys(backends, 0)
    total = len(plan.partitions)
    done = 0
    steps: list[Node | Delegate] = []
    for step in plan.steps:
        if isinstance(step, Node):
            steps.append(step)
            continue
        program = partition_program(method, step, counts[step.backend])
        steps.append(_preprocess(step, program, backends[step.backend]))
        counts[step.backend] += 1
        done += 1
        progress(done, total)
    return LoweredMethod(method, plan, tuple(steps))


def partition_program(method: EdgeMethod, partition: Partition, index: int = 0) -> PartitionProgram:
    """The partition as a program of its own: constants are references, nodes keep their names and metadata."""
    graph = Graph()
    copies: dict[Node, Node] = {}

    def copy_placeholder(node: Node) -> Node:
        copy = graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
        return copy

    constants = [copy_placeholder(node) for node in partition.constants]
    inputs = [copy_placeholder(node) for node in partition.inputs]
    for node in partition.nodes:
        args: Any = torch.fx.map_arg(node.args, copies.__getitem__)
        kwargs: Any = torch.fx.map_arg(node.kwargs, copies.__getitem__)
        copy = graph.create_node("call_function", node.target, args, kwargs, node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
    outputs = tuple(copies[node] for node in partition.outputs)
    graph.output(outputs)
    tensors: dict[str, Any] = {
        copy.name: method.constants[node] for copy, node in zip(constants, partition.constants, strict=True)
    }
    signature = ExportGraphSignature(
        [
            *(InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name) for node in constants),
            *(InputSpec(InputKind.USER_INPUT, TensorArgument(node.name), None) for node in inputs),
        ],
        [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), None) for node in outputs],
    )
    program = ExportedProgram(
        torch.nn.Module(),
        graph,
        signature,
        state_dict={},
        range_constraints={},
        module_call_graph=[_call_entry(len(inputs), len(outputs))],
        constants=tensors,
    )
    view = ProgramView(
        program.graph, {node: tensors[node.name] for node in constants}, tuple(inputs), outputs, method.name
    )
    return PartitionProgram(program, view, index)


def _call_entry(inputs: int, outputs: int) -> ModuleCallEntry:
    """The calling convention: positional inputs, a tuple of outputs."""
    in_spec = tree_structure((tuple(range(inputs)), {}))
    out_spec = tree_structure(tuple(range(outputs)))
    return ModuleCallEntry("", ModuleCallSignature([], [], in_spec, out_spec))


def _preprocess(partition: Partition, program: PartitionProgram, chosen: ChosenBackend) -> Delegate:
    name = chosen.backend.name
    where = f"partition {program.index} of method {program.method} for backend {name}"
    try:
        result = chosen.backend.preprocess(program, chosen.options)
    except DelegateKitError:
        raise
    except Exception as error:
        first, last = describe_node(partition.nodes[0]), describe_node(partition.nodes[-1])
        raise LoweringError(
            f"the backend failed: {type(error).__name__}: {error}",
            where=where,
            hint=f"the partition's {len(partition.nodes)} nodes go from {first} to {last}; "
            f"report this to the publisher of {chosen.backend.distribution}",
        ) from error
    if not isinstance(result, PreprocessResult):
        raise PluginError(f"preprocess returned {type(result).__name__}, not a PreprocessResult", where=where)
    blob = result.blob
    parts = (blob,) if isinstance(blob, bytes | bytearray | memoryview) else tuple(blob)
    if not any(len(part) for part in parts):
        raise PluginError("preprocess returned an empty blob", where=where)
    return Delegate(partition, chosen, parts, result.compile_specs, result.named_data, dict(result.debug_handle_map))
