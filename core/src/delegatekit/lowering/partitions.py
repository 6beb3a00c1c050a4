"""Compiles each partition with its backend into lowered methods, whose steps are fallback operators and delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Node

from delegatekit_api import DelegateKitError, LoweringError, PartitionProgram
from delegatekit_api.nodes import describe_node

from ..compiling import CheckedResult, CompilerDiedError, Compiling, Task
from ..edge import EdgeMethod
from ..edge.precompiled import called_module, is_precompiled
from ..partition import Partition, PartitionedMethod, PartitionPlan
from ..plugins import blaming
from .delegates import ChosenBackend, Delegate, LoweredMethod, Replacement
from .program import partition_program
from .replacements import replacement


def lower_partitions(
    methods: Mapping[str, PartitionedMethod],
    backends: Mapping[str, ChosenBackend],
    progress: Callable[[int, int], None] = lambda done, total: None,
    compiling: Compiling | None = None,
) -> dict[str, LoweredMethod]:
    """Compile every partition of every method with its backend, a backend's together if it asks for that.

    Raises the backend's refusals, with the partition's place.
    """
    steps = [(name, *item) for name, method in methods.items() for item in _partitions(method.edge, method.plan)]
    pieces = _pieces(steps, backends)
    found: dict[int, Delegate | Replacement] = {}
    for piece in pieces:
        if piece.chosen.backend.is_library:
            with _blaming([piece]):
                found[id(piece.step)] = replacement(piece.step, piece.program, piece.chosen, piece.place)
    delegated = [piece for piece in pieces if id(piece.step) not in found]
    others = [piece for name in backends for piece in delegated if piece.step.backend == name]
    for piece, delegate in zip(others, _compiled(others, progress, compiling), strict=True):
        found[id(piece.step)] = delegate
    return {name: _assemble(method.edge, method.plan, found) for name, method in methods.items()}


def compile_partitions(
    partitions: Iterable[tuple[str, EdgeMethod, Partition]], backends: Mapping[str, ChosenBackend]
) -> list[Delegate]:
    """The delegates of partitions, each given with the name of its method and the graph that it is a part of.

    Raises as `lower_partitions` does.
    """
    return _compiled(_pieces(partitions, backends))


@dataclass(frozen=True)
class _Piece:
    """A partition, as a program, and its backend."""

    step: Partition
    program: PartitionProgram
    chosen: ChosenBackend

    @property
    def place(self) -> str:
        """Its name in messages."""
        return f"partition {self.program.index} of method {self.program.method} for backend {self.chosen.backend.name}"

    def delegate(self, result: CheckedResult) -> Delegate:
        """The resulting delegate."""
        return Delegate(
            self.step,
            self.chosen,
            result.blob,
            result.compile_specs,
            result.named_data,
            result.debug_handle_map,
            result.estimate,
        )


def _pieces(
    partitions: Iterable[tuple[str, EdgeMethod, Partition]], backends: Mapping[str, ChosenBackend]
) -> list[_Piece]:
    found: list[_Piece] = []
    counts: dict[tuple[str, str], int] = {}
    for name, edge, step in partitions:
        index = counts[name, step.backend] = counts.get((name, step.backend), -1) + 1
        found.append(_Piece(step, partition_program(edge, step, index, name), backends[step.backend]))
    return found


def _compiled(
    pieces: Sequence[_Piece],
    progress: Callable[[int, int], None] = lambda done, total: None,
    compiling: Compiling | None = None,
) -> list[Delegate]:
    names = dict.fromkeys(piece.step.backend for piece in pieces)
    groups = [group for name in names for group in _together([p for p in pieces if p.step.backend == name])]
    delegates: dict[int, Delegate] = {}
    results = (compiling or Compiling()).compiler().run([_task(group) for group in groups])
    with closing(results):
        for group in groups:
            with _blaming(group):
                compiled = next(results)
            for piece, result in zip(group, compiled, strict=True):
                delegates[id(piece)] = piece.delegate(result)
            progress(len(delegates), len(pieces))
    return [delegates[id(piece)] for piece in pieces]


def _together(pieces: list[_Piece]) -> list[list[_Piece]]:
    """The partitions of a backend that are compiled in one call."""
    if not pieces:
        return []
    return [pieces] if pieces[0].chosen.compiles_together else [[piece] for piece in pieces]


def _task(group: Sequence[_Piece]) -> Task:
    chosen = group[0].chosen
    programs = [piece.program for piece in group]
    return Task(chosen.backend, chosen.options, programs, [piece.place for piece in group])


def _partitions(edge: EdgeMethod, plan: PartitionPlan) -> Iterator[tuple[EdgeMethod, Partition]]:
    """All partitions in execution order, each with the graph that it belongs to."""
    for step in plan.steps:
        if isinstance(step, Partition):
            yield edge, step
        elif step in edge.regions:
            for region, inner in zip(edge.regions[step], plan.regions[step], strict=True):
                yield from _partitions(region, inner)


def _assemble(edge: EdgeMethod, plan: PartitionPlan, delegates: Mapping[int, Delegate | Replacement]) -> LoweredMethod:
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
    delegate: Delegate = called_module(call).delegate
    inputs: Any = call.args[0]
    handle = call.meta["debug_handle"]
    return replace(
        delegate,
        partition=Partition(delegate.partition.backend, (call,), tuple(inputs), (), ()),
        debug_handle_map=dict.fromkeys(delegate.debug_handle_map, (handle,)),
        call=call,
        original=delegate,
    )


@contextmanager
def _blaming(group: Sequence[_Piece]) -> Iterator[None]:
    """Turn foreign exceptions of a backend, and the death of its process, into an error that names it."""
    chosen = group[0].chosen
    backend = chosen.backend
    methods = dict.fromkeys(piece.program.method for piece in group)
    where, about = f"the partitions of methods {', '.join(methods)} for backend {backend.name}", ""
    if not chosen.compiles_together:
        nodes = group[0].step.nodes
        where = group[0].place
        about = f"the partition's {len(nodes)} nodes go from {describe_node(nodes[0])} to {describe_node(nodes[-1])}; "

    def error(fault: str) -> LoweringError:
        hint = f"{about}report this to the publisher of {backend.distribution}"
        return LoweringError(f"the backend failed: {fault}", where=where, hint=hint)

    try:
        with blaming(error, passing=(DelegateKitError, CompilerDiedError)):
            yield
    except CompilerDiedError as died:
        raise error(str(died)) from None
