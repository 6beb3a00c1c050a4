"""Hands each partition to its backend: out come lowered methods, whose steps are fallback operators and delegates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from torch.fx import Node

from delegatekit_api import LoweringError, PartitionProgram, PluginError
from delegatekit_api.nodes import describe_node

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled, precompiled
from ..partition import Partition, PartitionedMethod, PartitionPlan
from ..plugins import blaming, check_answer
from .delegates import ChosenBackend, Delegate, LoweredMethod
from .program import partition_program
from .result import check_result


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
    check_answer(results, Mapping[str, Sequence[Any]], "what preprocess_methods returned", where)
    if {name: len(of_method) for name, of_method in results.items()} != {
        name: len(of_method) for name, of_method in programs.items()
    }:
        raise PluginError("preprocess_methods did not return one result for each partition", where=where)
    for name, items in methods.items():
        for (step, program), result in zip(items, results[name], strict=True):
            yield step, _delegate(step, result, chosen, _place(program, chosen))


def _place(program: PartitionProgram, chosen: ChosenBackend) -> str:
    return f"partition {program.index} of method {program.method} for backend {chosen.backend.name}"


def _blaming(chosen: ChosenBackend, where: str, partition: Partition | None = None) -> AbstractContextManager[None]:
    """Turn what a backend raises, other than our own errors, into an error that names it."""

    def error(fault: str) -> LoweringError:
        about = ""
        if partition is not None:
            first, last = describe_node(partition.nodes[0]), describe_node(partition.nodes[-1])
            about = f"the partition's {len(partition.nodes)} nodes go from {first} to {last}; "
        return LoweringError(
            f"the backend failed: {fault}",
            where=where,
            hint=f"{about}report this to the publisher of {chosen.backend.distribution}",
        )

    return blaming(error)


def _delegate(partition: Partition, result: Any, chosen: ChosenBackend, where: str) -> Delegate:
    checked = check_result(result, where)
    return Delegate(
        partition,
        chosen,
        checked.blob,
        checked.compile_specs,
        checked.named_data,
        checked.debug_handle_map,
        checked.estimate,
    )
