"""The list of stages: model -> exported program -> edge -> partition -> delegates -> image of a .pte file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torch.export import ExportedProgram

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.observers import StageEvent
from delegatekit_toolkit.passes import Change

from ..compiling import Compiling
from ..edge import EdgeMethod, build_edge, shared_buffers
from ..edge.export import Model, exported_programs
from ..emit import External, FileOptions, MemoryOptions, emit
from ..errors.foreign import UNEXPECTED, as_ours
from ..errors.misuse import WrongArgumentError
from ..lowering import ChosenBackend, lower_partitions, refusals
from ..lowering.budget import Budget, check_budget
from ..partition import Asked, PartitionedMethod, PartitionFunction, Placement, Selection, Selectors, settle
from ..passes import OwnedPass, ProgramPassLike, apply_passes, given_passes
from ..plugins import discovery, notify
from ..version import __version__
from .module import LoweredModule, check_whole
from .program import LoweredProgram

_SIGNATURE = "help(delegatekit.lower) tells what each argument is"

#: What goes wrong before, between and after the stages: mostly arguments of a wrong type.
_checked = as_ours(lambda fault: LoweringError(f"invalid argument: {fault}", hint=_SIGNATURE))


@_checked
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
    partition: PartitionFunction | Placement | None = None,
    keep: Sequence[str] | None = None,
    passes: Sequence[ProgramPassLike] | None = None,
    external: External = False,
    stack_traces: bool = False,
    memory: MemoryOptions | None = None,
    budget: Budget | None = None,
    compiling: Compiling | None = None,
) -> LoweredProgram:
    """Lower a model to backends, in priority order; what none of them takes runs on the runtime's own operators.

    `model` is a module in eval mode with example `inputs` (and `kwargs`, and `dynamic_shapes` as torch.export takes
    them: every changing size needs an upper bound), an ExportedProgram, or a mapping of method names to
    ExportedPrograms. `options` maps a backend's name to its options. Raises PluginError for an unknown backend,
    OptionError for a wrong option, LoweringError, before any work, for a backend whose compiler is missing here, and
    UnsupportedError, with the user's source line, for an operator that no backend takes and the runtime cannot run.

    `only` and `skip` pin nodes: lists of module paths ("encoder.layers.*.attn", with all that is inside; "**" is any
    number of parts), operators ("aten.linear.default", "aten.linear", "linear": as exported, or as `explain` shows
    them) or functions of a node, for all backends or as a dict by backend. A backend gets only nodes that `only`
    selects and none that `skip` selects. What selects nothing is refused, and so is a name that is both a module and
    an operator: "module:linear", "operator:linear".
    `partition` is a function that forms the partitions itself: called for each graph (and again when operators that
    nothing runs whole were decomposed) with its ProgramView and with `ask(backend, node)`, it returns pairs of a
    backend and the nodes of one delegate, which are checked; other nodes run on the runtime. A mapping of methods to
    mappings of operators (names of the edge program's nodes) to backends ("" for none) only places these: partitions
    grow as usual. `keep` names the operators that stay whole for backends that ask for them so, or backends of which
    all such do; by default all do. What one backend wants whole, another may take in parts only.
    `passes` change the program before the backends are asked about it, in order: see `delegatekit_toolkit.passes`.

    `external` chooses the weights that live outside the .pte: a function that is called with the name and the data of
    each constant and of each piece of named data of a backend, and answers False (inside), True (in the data file
    that is named as the .pte is) or the name of a data file; or one of these answers for all. Names are the fully
    qualified names of parameters and buffers; constants that were computed have names made from their content. The
    initial values of buffers that the program updates stay inside.

    With `stack_traces` the file tells for each instruction which lines of the user's source it comes from.
    `memory` chooses the planner, the alignment and the memory spaces of the values; see `MemoryOptions`.
    `budget` holds the backends' own estimates to limits: {"sram": "512KB", "latency": "20ms"} (or bytes and seconds);
    what is over raises LoweringError with the figures. Only delegates are counted: see `lowering.budget.check_budget`.
    `compiling` says how the backends' compilers run: in processes of their own, several at a time, with limits, with
    or without the cache of what was compiled before; see `Compiling`.
    """
    clock, wanted = Clock(), given_passes(passes)
    chosen = _able_to_compile(choose(backends, options or {}))
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    partitioned = _accepted(programs, chosen, Selection(chosen, only, skip, partition, keep), clock, wanted)
    options_of_file = FileOptions(external, stack_traces, memory or MemoryOptions())
    return compiled(partitioned, chosen, clock, options_of_file, budget, compiling)


def compiled(
    partitioned: Mapping[str, PartitionedMethod],
    chosen: Mapping[str, ChosenBackend],
    clock: Clock | None = None,
    options: FileOptions | None = None,
    budget: Budget | None = None,
    compiling: Compiling | None = None,
) -> LoweredProgram:
    """The last stages of `lower`: compile what is partitioned, and emit it."""
    clock = clock or Clock()
    first = next(iter(partitioned))
    with clock.stage("lower", first) as progress:
        lowered = lower_partitions(partitioned, chosen, progress, compiling)
    if budget:
        check_budget(lowered, budget)
    with clock.stage("emit", first):
        emitted = emit(lowered, f"delegatekit {__version__}", options or FileOptions())
    return LoweredProgram(lowered, emitted, clock.seconds, partitioned, tuple(chosen))


@_checked
def to_backend(
    model: Model,
    inputs: Sequence[Any] | None = None,
    *,
    backend: str,
    options: Mapping[str, Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    passes: Sequence[ProgramPassLike] | None = None,
) -> LoweredModule:
    """Compile a whole module (or ExportedProgram) into one delegate of one backend.

    The result is a module with the same inputs and outputs: call it, or put it into a bigger module, and export
    (`strict=False`) and lower that with any backends. Raises UnsupportedError if the backend leaves any operator, with
    its reason, and for programs that are not functional: those that update buffers.
    """
    clock, wanted = Clock(), given_passes(passes)
    chosen = _able_to_compile(choose([backend], {backend: options or {}}))
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    partitioned = _accepted(programs, chosen, Selection(chosen), clock, wanted)
    for method in partitioned.values():
        check_whole(method, backend)
    return LoweredModule(compiled(partitioned, chosen, clock))


@dataclass(frozen=True)
class PlannedProgram:
    """A program as backends would share it: nothing of it is compiled."""

    #: Method -> its edge program, and who takes which node of it.
    methods: Mapping[str, PartitionedMethod]
    backends: Mapping[str, ChosenBackend]
    #: Why backends refuse the program as it is planned: `lower` raises the first of these.
    refused: tuple[UnsupportedError, ...]


@_checked
def plan(
    model: Model | Mapping[str, Model],
    inputs: Sequence[Any] | None = None,
    *,
    backends: Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    only: Selectors | None = None,
    skip: Selectors | None = None,
    partition: PartitionFunction | Placement | None = None,
    keep: Sequence[str] | None = None,
    passes: Sequence[ProgramPassLike] | None = None,
    every: bool = False,
) -> PlannedProgram:
    """Partition a model as `lower` does with the same arguments, and compile nothing: no compiler need be there.

    With `every`, each backend is asked about each node, also about those that another one takes: `verdicts` of a plan
    has all answers. Raises as `lower` does, except for what backends refuse, which is told in `PlannedProgram.refused`.
    """
    clock, wanted = Clock(), given_passes(passes)
    chosen = choose(backends, options or {})
    programs = exported_programs(model, inputs, kwargs, dynamic_shapes, clock.stage("export", "forward"))
    selection = Selection(chosen, only, skip, partition, keep)
    partitioned, refused = _partitioned(programs, chosen, selection, clock, wanted, every=every)
    return PlannedProgram(partitioned, chosen, tuple(refused))


def choose(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, ChosenBackend]:
    """Backends of these names with their options. Raises PluginError for an unknown one, OptionError."""
    if isinstance(names, str):
        raise LoweringError(f"backends = {names!r} is a string", hint=f"pass a list: backends=[{names!r}]")
    strangers = set(options) - set(names)
    if strangers:
        raise WrongArgumentError(
            f"options for {', '.join(sorted(strangers))}, which is not among the backends {list(names)}",
            hint="add it to backends or drop its options",
        )
    chosen: dict[str, ChosenBackend] = {}
    for name in names:
        backend = discovery.get_backend(name)
        chosen[name] = ChosenBackend(backend, backend.make_options(options.get(name, {})))
    return chosen


def _able_to_compile(chosen: dict[str, ChosenBackend]) -> dict[str, ChosenBackend]:
    """The same backends. Raises LoweringError if the compiler of one is missing here."""
    for name, choice in chosen.items():
        compiler = choice.backend.compiler_availability(choice.options)
        if not compiler.available:
            raise LoweringError(f"cannot compile here: {compiler.reason}", where=f"backend {name}")
    return chosen


def _accepted(
    programs: Mapping[str, ExportedProgram],
    chosen: Mapping[str, ChosenBackend],
    selection: Selection,
    clock: Clock,
    passes: Sequence[OwnedPass],
) -> dict[str, PartitionedMethod]:
    """The programs, partitioned. Raises UnsupportedError if a backend refuses them as they are planned."""
    found, refused = _partitioned(programs, chosen, selection, clock, passes)
    for error in refused:
        raise error
    return found


def _partitioned(
    programs: Mapping[str, ExportedProgram],
    chosen: Mapping[str, ChosenBackend],
    selection: Selection,
    clock: Clock,
    passes: Sequence[OwnedPass],
    *,
    every: bool = False,
) -> tuple[dict[str, PartitionedMethod], list[UnsupportedError]]:
    """The programs in the edge dialect, partitioned, and what backends say that refuse them so.

    With `every`, each backend is asked about each node.
    """
    edges: dict[str, EdgeMethod] = {}
    asked: dict[str, Asked] = {}
    changes: dict[str, tuple[Change, ...]] = {}
    passes = (*passes, *_passes_of(chosen))
    for name, program in programs.items():
        partitioners = {
            backend: choice.backend.create_partitioner(choice.options) for backend, choice in chosen.items()
        }
        descriptions = {backend: choice.backend.description for backend, choice in chosen.items()}
        asked[name] = Asked.of(partitioners, descriptions, selection, every=every)
        with clock.stage("edge", name):
            edges[name] = build_edge(program, keep=asked[name].keep, method=name).verified()
            edges[name], changes[name] = apply_passes(edges[name], passes, asked[name].keep)
    shared = shared_buffers(edges.values())
    found = {
        name: replace(
            settle(edge, asked[name].with_shared(shared), partial(clock.stage, method=name)), changes=changes[name]
        )
        for name, edge in edges.items()
    }
    selection.check_used()
    refused = [error for name, method in found.items() for error in refusals(method, asked[name].partitioners)]
    return found, refused


def _passes_of(chosen: Mapping[str, ChosenBackend]) -> Iterator[OwnedPass]:
    """The passes of the backends' own, in priority order."""
    for choice in chosen.values():
        for item in choice.backend.passes(choice.options):
            yield OwnedPass(item, choice.backend.where)


class Clock:
    """CPU seconds of each stage, and the events that observers hear."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str, method: str) -> Iterator[Any]:
        """Measure a stage of a method; gives a function that is told how much of how much is done."""
        start = time.process_time()
        notify(StageEvent(name, "start", method))

        def progress(done: int, total: int) -> None:
            notify(StageEvent(name, "progress", method, done, total))

        try:
            with as_ours(lambda fault: LoweringError(fault, where=f"stage {name} of {method}", hint=UNEXPECTED)):
                yield progress
        finally:
            spent = time.process_time() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            notify(StageEvent(name, "finish", method, cpu_seconds=spent))
