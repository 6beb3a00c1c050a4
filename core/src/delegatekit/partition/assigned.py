"""Partitions that a user's function forms: its result is checked, and becomes the backends' proposals."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from torch.fx import Node

from delegatekit_api import BackendDescription, Call, LoweringError, Partitioner, ProgramView, Verdict
from delegatekit_api.nodes import describe_node

from ..edge import EdgeMethod
from ..edge.program import producer
from ..errors.foreign import as_ours
from .ask import ask_backends
from .foreign_sizes import lost_in_set

#: Asks a backend about a node.
Ask: TypeAlias = Callable[[str, Node], Verdict]
#: Forms partitions of a graph: pairs of a backend and the nodes of one delegate.
PartitionFunction: TypeAlias = Callable[[ProgramView, Ask], Iterable[tuple[str, Collection[Node]]]]


def assigned(
    function: PartitionFunction,
    edge: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    descriptions: Mapping[str, BackendDescription],
) -> dict[str, Partitioner]:
    """Partitioners that take the nodes that the user's function gives them, and nothing else."""
    program = edge.view
    where = f"partition function {getattr(function, '__name__', function)!s} for {program.method}"
    answers: dict[tuple[str, Node], Verdict] = {}

    def ask(backend: str, node: Node) -> Verdict:
        """The backend's verdict about a node; for a getitem, the verdict about its operator."""
        if backend not in partitioners:
            raise LoweringError(f"{backend!r} is not among the backends {list(partitioners)}", where=where)
        node = producer(node)
        if (backend, node) not in answers:
            asked = ask_backends(node, edge, {backend: partitioners[backend]}, descriptions)
            refused = Verdict.no("sizes, control flow and lowered modules are not for backends")
            answers[backend, node] = asked.get(backend, refused)
        return answers[backend, node]

    found: list[tuple[str, list[Node]]] = []
    claimed: set[Node] = set()
    with as_ours(lambda fault: LoweringError(f"failed: {fault}", where=where, hint="it returns a list of pairs")):
        items = list(function(program, ask))
    for item in items:
        backend, nodes = _pair(item, where)
        for node in nodes:
            if not isinstance(node, Node) or node.graph is not program.graph or node.op != "call_function":
                raise LoweringError(f"returned {node!r}, which is not an operator of the program", where=where)
            if node in claimed:
                raise LoweringError(f"returned a node twice: {describe_node(node)}", where=where)
            claimed.add(node)
            answer = ask(backend, node)
            if not answer.supported:
                raise LoweringError(
                    f"gives {backend} a node that it does not take: {describe_node(node)}",
                    where=where,
                    hint=answer.reason,
                )
        _check_complete(nodes, answers, backend, where)
        for node, size in lost_in_set(edge, nodes).items():
            raise LoweringError(
                f"gives {backend} a node that it does not take: {describe_node(node)}",
                where=where,
                hint=f"the size {size} is not a size of the partition's inputs",
            )
        if nodes:
            found.append((backend, nodes))
    _check_order(program, found, where)
    return {
        name: _Assigned(inner, [nodes for backend, nodes in found if backend == name])
        for name, inner in partitioners.items()
    }


def _pair(item: Any, where: str) -> tuple[str, list[Any]]:
    try:
        backend, nodes = item
        return backend, list(nodes)
    except (TypeError, ValueError):
        raise LoweringError(f"returned {item!r}, not a pair of a backend and its nodes", where=where) from None


def _check_complete(
    nodes: Sequence[Node], answers: Mapping[tuple[str, Node], Verdict], backend: str, where: str
) -> None:
    """Refuse a partition that separates nodes which belong together."""
    inside = set(nodes)
    for node in nodes:
        for other in (producer(node), *answers[backend, producer(node)].group):
            if producer(other) not in inside:
                raise LoweringError(
                    f"gives {backend} {describe_node(node)} without {describe_node(producer(other))}, "
                    "which goes with it",
                    where=where,
                )


def _check_order(program: ProgramView, partitions: Sequence[tuple[str, Sequence[Node]]], where: str) -> None:
    """Refuse partitions that depend on themselves, or on each other in a cycle: none of them could run first."""
    # A vertex is a partition's number, or a node in none; results belong to their operator.
    vertex: dict[Node, Any] = {node: number for number, (_, nodes) in enumerate(partitions) for node in nodes}
    before: dict[Any, dict[Any, Node]] = {}
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        own = vertex[node] = vertex.get(producer(node), producer(node))
        sources = before.setdefault(own, {})
        for argument in node.all_input_nodes:
            source = vertex.get(argument, vertex.get(producer(argument)))
            if source is not None and source != own:
                sources.setdefault(source, node)
    done: set[Any] = set()
    for start in range(len(partitions)):
        # Depth first, without recursion: graphs are deeper than Python's stack.
        path = [start] if start not in done else []
        open_sources = [iter(before.get(start, {}))]
        on_path = set(path)
        while path:
            source = next(open_sources[-1], None)
            if source is None:
                on_path.discard(path[-1])
                done.add(path.pop())
                open_sources.pop()
            elif source in on_path:
                _refuse_circle([*path[path.index(source) :], source], before, partitions, where)
            elif source not in done:
                path.append(source)
                on_path.add(source)
                open_sources.append(iter(before.get(source, {})))


def _refuse_circle(
    circle: Sequence[Any],
    before: Mapping[Any, Mapping[Any, Node]],
    partitions: Sequence[tuple[str, Sequence[Node]]],
    where: str,
) -> None:
    """Raise for a cycle of vertices, each one a source of the one before it, the first one also the last."""
    number, user = next((source, user) for user, source in pairwise(circle) if type(source) is int)
    backend, nodes = partitions[number]
    raise LoweringError(
        f"returned a partition that depends on itself through {describe_node(before[user][number])}",
        where=where,
        hint=f"the partition for {backend} begins with {describe_node(nodes[0])}: split it, or take in what is between",
    )


class _Assigned:
    """A partitioner with given partitions."""

    def __init__(self, inner: Partitioner, partitions: Sequence[Collection[Node]]) -> None:
        self._inner = inner
        self._partitions = partitions
        self._nodes = {node for partition in partitions for node in partition}

    def keep_operators(self) -> Collection[str]:
        return self._inner.keep_operators()

    def check(self, call: Call) -> Verdict:
        node = call.node
        answer = self._inner.check(call)
        if node in self._nodes:
            # The user wants it there, alone or not; the groups were checked to be complete.
            return replace(answer, passenger=False, group=())
        left = Verdict.no("the partition function does not give it this operator")
        return left if isinstance(answer, Verdict) and answer.supported else answer

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]]:
        return self._partitions
