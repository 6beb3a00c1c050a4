"""The whole road: model -> exported program -> edge -> partition -> lower -> image of a .pte file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegatekit_api import LoweringError, Partitioner, StageEvent

from .edge import EdgeMethod, build_edge
from .edge.export import Model, exported_programs
from .edge.precompiled import is_precompiled
from .edge.sizes import is_size_node
from .emit import External, MemoryOptions, emit
from .estimates import Budget, check_budget
from .fallback import kernel_of
from .fallback.rewrite import decompose_nodes
from .lowered_module import LoweredModule, check_whole
from .lowered_program import LoweredProgram
from .lowering import ChosenBackend, lower_partitions
from .partition import PartitionedMethod, keep_operators
from .partition import partition as form_partitions
from .partition.selection import PartitionFunction, Selection, Selectors
from .plugins import discovery, notify
from .version import __version__
from .views.explanation import Explanation, explain_plan

#: Environment variable that turns the checks at stage borders on (`--debug` and the tests set it).
VERIFY = "DELEGATEKIT_VERIFY"


def lower(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    only: Selectors | None = None,
    skip: Selectors | None = None,
    partition: PartitionFunction | None = None,
    external: External = False,
    stack_traces: bool = False,
    memory: MemoryOptions | None = None,
    budget: Budget | None = None,
) -> LoweredProgram:
    """Lower a model to backends, in priority order; what none of them takes runs on the runtime's own operators.

    `model` is a module in eval mode with example `inputs` (and `kwargs`, and `dynamic_shapes` as torch.export takes
    them: every changing size needs an upper bound), an ExportedProgram, or a mapping of method names to
    ExportedPrograms. `options` maps a backend's name to its options. Raises PluginError for an unknown
    backend, OptionError for a wrong option, and UnsupportedError, with the user's source line, for what nobody runs.

    `only` and `skip` pin nodes: lists of module paths ("encoder.layers.*.attn", with all that is inside; "**" is any
    number of parts), operators ("aten.linear.default", "aten.linear", "linear": as exported, or as `explain` shows
    them) or functions of a node, for all backends or as a dict by backend. A backend gets only nodes that `only`
    selects and none that `skip` selects. What selects nothing is refused, and so is a name that is both a module and
    an operator: "module:linear", "operator:linear".
    `partition` is a function that forms the partitions itself: called for each graph (and again when operators that
    nobody runs whole were decomposed) with its ProgramView and with `ask(backend, node)`, it returns pairs of a backend
    and the nodes of one delegate, which are checked; other nodes run on the runtime.

    `external` chooses the weights that live outside the .pte: a function that is called with the name and the data of
    each constant and of each piece of named data of a backend, and answers False (inside), True (in the data file
    that is named as the .pte is) or the name of a data file; or one of these answers for all. Names are the fully
    qualified names of parameters and buffers; constants that were computed have names made from their content. The
    initial values of buffers that the program updates stay inside.

    With `stack_traces` the file tells for each instruction which lines of the user's source it comes from.
    `memory` chooses the planner, the alignment and the memory spaces of the values; see `MemoryOptions`.
    `budget` holds the backends' own estimates to limits: {"sram": "512KB", "latency": "20ms"} (or bytes and seconds);
    what is over raises LoweringError with the figures. Only delegates are counted: see `estimates.check_budget`.
    """
    clock = _Clock()
    chosen = _choose(backends, options or {})
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    selection = Selection(chosen, only, skip, partition)
    partitioned = {name: _partitioned(program, name, chosen, selection, clock) for name, program in programs.items()}
    selection.check_used()
    return _compiled(partitioned, chosen, clock, external, stack_traces, memory, budget)


def _compiled(
    partitioned: Mapping[str, PartitionedMethod],
    chosen: Mapping[str, ChosenBackend],
    clock: _Clock,
    external: External = False,
    stack_traces: bool = False,
    memory: MemoryOptions | None = None,
    budget: Budget | None = None,
) -> LoweredProgram:
    first = next(iter(partitioned))
    with clock.stage("lower", first) as progress:
        lowered = lower_partitions(partitioned, chosen, progress)
    if budget:
        check_budget(lowered, budget)
    with clock.stage("emit", first):
        emitted = emit(
            lowered, f"delegatekit {__version__}", external=external, stack_traces=stack_traces, memory=memory
        )
    return LoweredProgram(lowered, emitted, clock.seconds, tuple(chosen))


def to_backend(
    model: Model,
    inputs: Sequence[Any] | None = None,
    *,
    backend: str,
    options: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> LoweredModule:
    """Compile a whole module (or ExportedProgram) into one delegate of one backend.

    The result is a module with the same inputs and outputs: call it, or put it into a bigger module, and export
    (`strict=False`) and lower that with any backends. Raises UnsupportedError if the backend leaves any operator, with
    its reason, and for programs that are not functional: those that update buffers.
    """
    clock = _Clock()
    chosen = _choose([backend], {backend: options or {}})
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    selection = Selection(chosen)
    partitioned = {name: _partitioned(program, name, chosen, selection, clock) for name, program in programs.items()}
    for method in partitioned.values():
        check_whole(method)
    return LoweredModule(_compiled(partitioned, chosen, clock))


def explain(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    only: Selectors | None = None,
    skip: Selectors | None = None,
    partition: PartitionFunction | None = None,
) -> Explanation:
    """Tell for every node who would run it, and why each backend that does not take it leaves it. Compiles nothing."""
    clock = _Clock()
    chosen = _choose(backends, options or {})
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    selection = Selection(chosen, only, skip, partition)
    plans = {
        name: _partitioned(program, name, chosen, selection, clock, ask_all=True) for name, program in programs.items()
    }
    selection.check_used()
    return explain_plan(plans, tuple(chosen))


def _choose(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, ChosenBackend]:
    if isinstance(names, str):
        raise LoweringError(f"backends = {names!r} is a string", hint=f"pass a list: backends=[{names!r}]")
    strangers = set(options) - set(names)
    if strangers:
        raise LoweringError(
            f"options for {', '.join(sorted(strangers))}, which is not among the backends {list(names)}",
            hint="add it to backends or drop its options",
        )
    chosen: dict[str, ChosenBackend] = {}
    for name in names:
        backend = discovery.get_backend(name)
        chosen[name] = ChosenBackend(backend, backend.make_options(options.get(name, {})))
    return chosen


def _partitioned(
    program: ExportedProgram,
    name: str,
    chosen: Mapping[str, ChosenBackend],
    selection: Selection,
    clock: _Clock,
    *,
    ask_all: bool = False,
) -> PartitionedMethod:
    partitioners: dict[str, Partitioner] = {
        backend: choice.backend.create_partitioner(choice.options) for backend, choice in chosen.items()
    }
    descriptions = {backend: choice.backend.description for backend, choice in chosen.items()}
    keep = keep_operators(partitioners)

    def settle(edge: EdgeMethod) -> PartitionedMethod:
        """Partition until nobody is left with a node that he cannot run, from the inmost control flow outwards."""
        inner = {call: tuple(map(settle, regions)) for call, regions in edge.regions.items()}
        edge = replace(edge, regions={call: tuple(r.edge for r in regions) for call, regions in inner.items()})
        plans = {id(region.edge): region.plan for regions in inner.values() for region in regions}
        while True:
            with clock.stage("partition", name):
                selected = selection.partitioners(edge, partitioners, descriptions)
                plan = form_partitions(edge, selected, descriptions=descriptions, ask_all=ask_all)
            # Nobody runs these whole: kept for a backend that then left them, or without a kernel in the runtime.
            stranded = {node for node in plan.fallback if _has_no_kernel(node)}
            decomposed = False
            if stranded:
                with clock.stage("edge", name):
                    rewritten, decomposed = decompose_nodes(edge, stranded, keep=keep)
            if not decomposed:  # emission refuses what is stranded, explanations show it
                regions = {call: tuple(plans[id(region)] for region in graphs) for call, graphs in edge.regions.items()}
                return PartitionedMethod(edge, replace(plan, regions=regions))
            edge = _verified(rewritten)

    with clock.stage("edge", name):
        edge = _verified(build_edge(program, keep=keep, method=name))
    return settle(edge)


def _verified(edge: EdgeMethod) -> EdgeMethod:
    if os.environ.get(VERIFY):
        edge.verify()
    return edge


def _has_no_kernel(node: Node) -> bool:
    if is_size_node(node) or is_precompiled(node):
        return False
    return isinstance(node.target, torch._ops.OpOverload) and kernel_of(node) is None


class _Clock:
    """CPU seconds of each stage, and the events that observers hear."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, method: str) -> Iterator[Any]:
        start = time.process_time()
        notify(StageEvent(name, "start", method))

        def progress(done: int, total: int) -> None:
            notify(StageEvent(name, "progress", method, done, total))

        try:
            yield progress
        finally:
            spent = time.process_time() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            notify(StageEvent(name, "finish", method, cpu_seconds=spent))
