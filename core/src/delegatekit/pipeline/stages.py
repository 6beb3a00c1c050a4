"""The list of stages: model -> exported program -> edge -> partition -> delegates -> image of a .pte file."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from delegatekit_api import LoweringError, UnsupportedError
from delegatekit_api.observers import StageEvent
from delegatekit_toolkit.passes import Change

from ..compiling import Compiling
from ..edge import EdgeMethod, build_edge, shared_buffers
from ..emit import FileOptions, MemoryOptions, emit
from ..errors.foreign import UNEXPECTED, as_ours
from ..errors.misuse import WrongArgumentError
from ..lowering import ChosenBackend, check_minimum, lower_partitions, parse_minimum, refusals, shares_of
from ..lowering.budget import Budget, check_budget
from ..partition import Asked, PartitionedMethod, Selection, settle
from ..passes import OwnedPass, ProgramPassLike, apply_passes, given_passes
from ..plugins import discovery, notify
from ..version import __version__
from .arguments import Delegating, Lowering, Partitioning, Planning, Source, takes
from .module import LoweredModule, check_whole
from .program import LoweredProgram

_SIGNATURE = "help(delegatekit.lower) tells what each argument is"

#: What goes wrong before, between and after the stages: mostly arguments of a wrong type.
_checked = as_ours(lambda fault: LoweringError(f"invalid argument: {fault}", hint=_SIGNATURE))


@_checked
@takes(Lowering)
def lower(given: Lowering) -> LoweredProgram:
    """Lower a model to backends, in priority order; what none of them takes runs on the runtime's own operators.

    Raises PluginError for an unknown backend, OptionError for a wrong option, LoweringError, before any work, for a
    backend whose compiler is missing here, and UnsupportedError, with the user's source line, for an operator that no
    backend takes and the runtime cannot run.
    """
    clock, chosen = Clock(), _able_to_compile(choose(given.backends, given.options or {}))
    file = FileOptions(given.external, given.stack_traces, given.memory or MemoryOptions())
    least = parse_minimum(given.min_delegated)
    partitioned = _accepted(_planned(given, chosen, _selection(given, chosen), given.passes, clock))
    if least:
        check_minimum(shares_of(partitioned, tuple(chosen)), least)
    return compiled(partitioned, chosen, clock, file, given.budget, given.compiling)


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
@takes(Delegating)
def to_backend(given: Delegating) -> LoweredModule:
    """Compile a whole module (or ExportedProgram) into one delegate of one backend.

    The result is a module with the same inputs and outputs: call it, or put it into a bigger module, and export
    (`strict=False`) and lower that with any backends. Raises UnsupportedError if the backend leaves any operator, with
    its reason, and for programs that are not functional: those that update buffers.
    """
    clock = Clock()
    chosen = _able_to_compile(choose([given.backend], {given.backend: given.options or {}}))
    partitioned = _accepted(_planned(given, chosen, Selection(chosen), given.passes, clock))
    for method in partitioned.values():
        check_whole(method, given.backend)
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
@takes(Planning)
def plan(given: Planning) -> PlannedProgram:
    """Partition a model as `lower` does with the same arguments, and compile nothing: no compiler need be there.

    Raises as `lower` does, except for what backends refuse, which is told in `PlannedProgram.refused`.
    """
    chosen = choose(given.backends, given.options or {})
    return _planned(given, chosen, _selection(given, chosen), given.passes, Clock(), every=given.every)


def _selection(given: Partitioning, backends: Collection[str]) -> Selection:
    return Selection(backends, given.only, given.skip, given.partition, given.keep)


def choose(names: Sequence[str], options: Mapping[str, Mapping[str, Any]]) -> dict[str, ChosenBackend]:
    """Backends of these names with their options. Raises PluginError for an unknown one, OptionError."""
    if isinstance(names, str):
        raise LoweringError(f"backends = {names!r} is a string", hint=f"pass a list: backends=[{names!r}]")
    if not isinstance(options, Mapping):
        raise WrongArgumentError(f"options = {options!r} is not {{backend: {{option: value}}}}")
    strangers = set(map(str, options)) - set(names)
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


def _accepted(planned: PlannedProgram) -> Mapping[str, PartitionedMethod]:
    """The partitioned methods. Raises UnsupportedError if a backend refuses them as they are planned."""
    for error in planned.refused:
        raise error
    return planned.methods


def _planned(
    source: Source,
    chosen: Mapping[str, ChosenBackend],
    selection: Selection,
    passes: Sequence[ProgramPassLike] | None,
    clock: Clock,
    *,
    every: bool = False,
) -> PlannedProgram:
    """The programs in the edge dialect, partitioned. With `every`, each backend is asked about each node."""
    run = (*given_passes(passes), *_passes_of(chosen))
    edges: dict[str, EdgeMethod] = {}
    asked: dict[str, Asked] = {}
    changes: dict[str, tuple[Change, ...]] = {}
    for name, program in source.programs(clock.stage("export", "forward")).items():
        partitioners = {
            backend: choice.backend.create_partitioner(choice.options) for backend, choice in chosen.items()
        }
        descriptions = {backend: choice.backend.description for backend, choice in chosen.items()}
        asked[name] = Asked.of(partitioners, descriptions, selection, every=every)
        with clock.stage("edge", name):
            edges[name] = build_edge(program, keep=asked[name].keep, method=name).verified()
            edges[name], changes[name] = apply_passes(edges[name], run, asked[name].keep)
    shared = shared_buffers(edges.values())
    found = {
        name: replace(
            settle(edge, asked[name].with_shared(shared), partial(clock.stage, method=name)), changes=changes[name]
        )
        for name, edge in edges.items()
    }
    selection.check_used()
    refused = [error for name, method in found.items() for error in refusals(method, asked[name].partitioners)]
    return PlannedProgram(found, chosen, tuple(refused))


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
    def stage(self, name: str, method: str) -> Iterator[Callable[[int, int], None]]:
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
