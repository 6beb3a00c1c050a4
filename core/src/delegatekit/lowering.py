"""Hands each partition to its backend: out come lowered methods, whose steps are fallback operators and delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
    Estimate,
    LoweringError,
    MutableState,
    NamedData,
    PartitionProgram,
    PluginError,
    PreprocessResult,
    ProgramView,
    describe_node,
)

from .edge import EdgeMethod
from .edge.sizes import SizeNodes
from .partition import Partition, PartitionedMethod, PartitionPlan
from .precompiled import is_precompiled, precompiled

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
    #: What the backend expects it to cost.
    estimate: Estimate | None = None
    #: The call of a lowered module, if the delegate was compiled before.
    call: Node | None = None
    #: The delegate of that module's own program, whose debug handles are that program's.
    original: Delegate | None = None

    @property
    def results(self) -> tuple[tuple[Any, Any], ...]:
        """What it computes: the node, or the call and the result's number, and the fake value."""
        if self.call is not None:
            return tuple(((self.call, number), value) for number, value in enumerate(self.call.meta["val"]))
        return tuple((node, node.meta["val"]) for node in self.partition.outputs)

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
    #: Call of a control flow operator -> its graphs, lowered.
    regions: Mapping[Node, tuple[LoweredMethod, ...]] = field(default_factory=dict)

    @property
    def delegates(self) -> tuple[Delegate, ...]:
        """The delegates in the order of their calls, those inside control flow included."""
        return tuple(self._delegates())

    def _delegates(self) -> Iterator[Delegate]:
        for step in self.steps:
            if isinstance(step, Delegate):
                yield step
            for region in self.regions.get(step, ()) if isinstance(step, Node) else ():
                yield from region.delegates


def lower_partitions(
    methods: Mapping[str, PartitionedMethod],
    backends: Mapping[str, ChosenBackend],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, LoweredMethod]:
    """Compile every partition of every method with its backend, a backend's together if it asks for that.

    Raises what the backend refuses, with the partition's place.
    """
    found: dict[str, dict[str, list[tuple[Partition, PartitionProgram]]]] = {name: {} for name in backends}
    for name, method in methods.items():
        for edge, step in _partitions(method.edge, method.plan):
            of_method = found[step.backend].setdefault(name, [])
            of_method.append((step, partition_program(edge, step, len(of_method), name)))
    total = sum(len(items) for of_backend in found.values() for items in of_backend.values())
    delegates: dict[int, Delegate] = {}
    for backend, of_backend in found.items():
        for step, delegate in _compile(of_backend, backends[backend]):
            delegates[id(step)] = delegate
            progress(len(delegates), total)
    return {name: _assemble(method.edge, method.plan, delegates) for name, method in methods.items()}


def _partitions(edge: EdgeMethod, plan: PartitionPlan) -> Iterator[tuple[EdgeMethod, Partition]]:
    """All partitions in execution order, each with the graph that it belongs to."""
    for step in plan.steps:
        if isinstance(step, Partition):
            yield edge, step
        elif step in edge.regions:
            for region, inner in zip(edge.regions[step], plan.regions[step], strict=True):
                yield from _partitions(region, inner)


def _assemble(edge: EdgeMethod, plan: PartitionPlan, delegates: Mapping[int, Delegate]) -> LoweredMethod:
    steps = tuple(
        delegates[id(step)] if isinstance(step, Partition) else _embedded(step) if is_precompiled(step) else step
        for step in plan.steps
    )
    regions = {
        call: tuple(
            _assemble(region, inner, delegates)
            for region, inner in zip(edge.regions[call], plan.regions[call], strict=True)
        )
        for call in edge.regions
    }
    return LoweredMethod(edge, plan, steps, regions)


def _embedded(call: Node) -> Delegate:
    """The delegate of a lowered module, for this call of it."""
    delegate: Delegate = precompiled(call).delegate
    inputs: Any = call.args[0]
    handle = call.meta["debug_handle"]
    return replace(
        delegate,
        partition=Partition(delegate.partition.backend, (call,), tuple(inputs), (), ()),
        debug_handle_map=dict.fromkeys(delegate.debug_handle_map, (handle,)),
        call=call,
        original=delegate,
    )


def _compile(
    methods: Mapping[str, Sequence[tuple[Partition, PartitionProgram]]], chosen: ChosenBackend
) -> Iterator[tuple[Partition, Delegate]]:
    if not methods or not chosen.backend.has("preprocess_methods"):
        for items in methods.values():
            for step, program in items:
                with _blaming(chosen, _place(program, chosen), step):
                    result = chosen.backend.preprocess(program, chosen.options)
                yield step, _delegate(step, result, chosen, _place(program, chosen))
        return
    where = f"the partitions of methods {', '.join(methods)} for backend {chosen.backend.name}"
    programs = {name: [program for _, program in items] for name, items in methods.items()}
    with _blaming(chosen, where):
        results = chosen.backend.preprocess_methods(programs, chosen.options)
    if not isinstance(results, Mapping) or {name: len(of_method) for name, of_method in results.items()} != {
        name: len(of_method) for name, of_method in programs.items()
    }:
        raise PluginError("preprocess_methods did not return one result for each partition", where=where)
    for name, items in methods.items():
        for (step, program), result in zip(items, results[name], strict=True):
            yield step, _delegate(step, result, chosen, _place(program, chosen))


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


def _place(program: PartitionProgram, chosen: ChosenBackend) -> str:
    return f"partition {program.index} of method {program.method} for backend {chosen.backend.name}"


@contextmanager
def _blaming(chosen: ChosenBackend, where: str, partition: Partition | None = None) -> Iterator[None]:
    """Turn what a backend raises, other than our own errors, into an error that names it."""
    try:
        yield
    except DelegateKitError:
        raise
    except Exception as error:
        about = ""
        if partition is not None:
            first, last = describe_node(partition.nodes[0]), describe_node(partition.nodes[-1])
            about = f"the partition's {len(partition.nodes)} nodes go from {first} to {last}; "
        raise LoweringError(
            f"the backend failed: {type(error).__name__}: {error}",
            where=where,
            hint=f"{about}report this to the publisher of {chosen.backend.distribution}",
        ) from error


def _delegate(partition: Partition, result: Any, chosen: ChosenBackend, where: str) -> Delegate:
    if not isinstance(result, PreprocessResult):
        raise PluginError(f"preprocess returned {type(result).__name__}, not a PreprocessResult", where=where)
    blob = result.blob
    parts = (blob,) if isinstance(blob, bytes | bytearray | memoryview) else tuple(blob)
    if not any(len(part) for part in parts):
        raise PluginError("preprocess returned an empty blob", where=where)
    if not isinstance(result.estimate, Estimate | None):
        raise PluginError(f"its estimate is a {type(result.estimate).__name__}, not an Estimate", where=where)
    return Delegate(
        partition,
        chosen,
        parts,
        result.compile_specs,
        result.named_data,
        dict(result.debug_handle_map),
        result.estimate,
    )
