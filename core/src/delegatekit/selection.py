"""The user's say in partitioning: `only` and `skip` pin nodes to backends, and a function of his own forms partitions.

Both work by wrapping the backends' partitioners, so that partitioning itself knows nothing of them.
"""

from __future__ import annotations

import difflib
import fnmatch
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from torch.fx import Node

from delegatekit_api import LoweringError, Partitioner, ProgramView, Verdict, describe_node, operator_name

from .edge import EdgeMethod
from .edge.sizes import is_size_node

#: A module path with wildcards ("encoder.layers.*.attn": with all that is inside), an operator ("aten.linear.default",
#: "aten.linear" or "linear"), or a function that says whether it means a node.
Selector: TypeAlias = str | Callable[[Node], bool]
#: Selectors for all backends, or for each by name.
Selectors: TypeAlias = Sequence[Selector] | Mapping[str, Sequence[Selector]]
#: Asks a backend about a node.
Ask: TypeAlias = Callable[[str, Node], Verdict]
#: Forms partitions of a graph: pairs of a backend and the nodes of one delegate.
PartitionFunction: TypeAlias = Callable[[ProgramView, Ask], Iterable[tuple[str, Collection[Node]]]]


class Selection:
    """What `only`, `skip` and `partition` of a lowering say. Raises LoweringError for what they cannot mean."""

    def __init__(
        self,
        backends: Collection[str],
        only: Selectors | None = None,
        skip: Selectors | None = None,
        function: PartitionFunction | None = None,
    ) -> None:
        self._only = _by_backend("only", only, backends)
        self._skip = _by_backend("skip", skip, backends)
        self._function = function
        self._matched: set[tuple[str, Selector]] = set()
        self._names: set[str] = set()

    def partitioners(self, edge: EdgeMethod, partitioners: Mapping[str, Partitioner]) -> dict[str, Partitioner]:
        """The partitioners of the backends for this graph, as the user wants them."""
        self._look_at(edge)
        pinned: dict[str, Partitioner] = {
            name: _Pinned(partitioner, self._only.get(name), self._skip.get(name, ()))
            if name in self._only or name in self._skip
            else partitioner
            for name, partitioner in partitioners.items()
        }
        if self._function is None:
            return pinned
        return _assigned(self._function, edge.view, pinned)

    def check_used(self) -> None:
        """Raise LoweringError for a selector that meant no node of any method."""
        for what, selectors in (("only", self._only), ("skip", self._skip)):
            for selector in dict.fromkeys(item for items in selectors.values() for item in items):
                if (what, selector) in self._matched:
                    continue
                near = difflib.get_close_matches(selector, self._names, 3) if isinstance(selector, str) else []
                raise LoweringError(
                    f"{what}={_text(selector)} selects no operator",
                    hint=f"did you mean {', '.join(near)}?"
                    if near
                    else "`delegatekit explain --all` lists modules and operators",
                )

    def _look_at(self, edge: EdgeMethod) -> None:
        nodes = [node for node in edge.graph.nodes if node.op == "call_function" and not is_size_node(node)]
        for node in nodes:
            self._names.update((*_operator_names(node), *_module_paths(node)))
        for what, selectors in (("only", self._only), ("skip", self._skip)):
            for selector in {item for items in selectors.values() for item in items}:
                if (what, selector) not in self._matched and any(_means(selector, node) for node in nodes):
                    self._matched.add((what, selector))


def _by_backend(what: str, selectors: Selectors | None, backends: Collection[str]) -> dict[str, tuple[Selector, ...]]:
    if selectors is None:
        return {}
    if isinstance(selectors, Mapping):
        strangers = set(selectors) - set(backends)
        if strangers:
            raise LoweringError(
                f"{what} speaks of {', '.join(sorted(strangers))}, which is not among the backends {list(backends)}"
            )
        return {name: _listed(what, items) for name, items in selectors.items()}
    return dict.fromkeys(backends, _listed(what, selectors))


def _listed(what: str, selectors: Sequence[Selector]) -> tuple[Selector, ...]:
    if isinstance(selectors, str) or callable(selectors):
        raise LoweringError(f"{what}={_text(selectors)} is no list", hint=f"write {what}=[{_text(selectors)}]")
    for selector in selectors:
        if not callable(selector) and not (isinstance(selector, str) and selector):
            raise LoweringError(
                f"{what} holds {selector!r}", hint="a module path, an operator's name or a function of a node is wanted"
            )
    return tuple(selectors)


def _text(selector: Selector) -> str:
    return repr(selector) if isinstance(selector, str) else getattr(selector, "__name__", repr(selector))


def _means(selector: Selector, node: Node) -> bool:
    if not isinstance(selector, str):
        try:
            return bool(selector(node))
        except Exception as error:
            raise LoweringError(
                f"selector {_text(selector)} failed: {type(error).__name__}: {error}", where=describe_node(node)
            ) from error
    if selector in _operator_names(node):
        return True
    return any(fnmatch.fnmatchcase(path, selector) for path in _module_paths(node))


def _operator_names(node: Node) -> tuple[str, str, str]:
    """ "aten.linear.default", "aten.linear" and "linear"."""
    name = operator_name(node)
    packet = name.rpartition(".")[0]
    return name, packet, packet.partition(".")[2]


def _module_paths(node: Node) -> Iterator[str]:
    """The path of the node's module and of those around it."""
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        if path:
            yield str(path)


class _Pinned:
    """A partitioner that is asked about some nodes only."""

    def __init__(self, inner: Partitioner, only: tuple[Selector, ...] | None, skip: tuple[Selector, ...]) -> None:
        self._inner = inner
        self._only = only
        self._skip = skip

    def keep_operators(self) -> Collection[str]:
        return self._inner.keep_operators()

    def check(self, node: Node, program: ProgramView) -> Verdict:
        for selector in self._skip:
            if _means(selector, node):
                return Verdict.no(f"left out by skip={_text(selector)}")
        if self._only is not None and not any(_means(selector, node) for selector in self._only):
            return Verdict.no(f"left out: only={', '.join(map(_text, self._only))}")
        return self._inner.check(node, program)

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]] | None:
        return self._inner.propose(program)


def _assigned(
    function: PartitionFunction, program: ProgramView, partitioners: Mapping[str, Partitioner]
) -> dict[str, Partitioner]:
    """Partitioners that take what the user's function gives them, and nothing else."""

    def ask(backend: str, node: Node) -> Verdict:
        if backend not in partitioners:
            raise LoweringError(f"{backend!r} is not among the backends {list(partitioners)}")
        return partitioners[backend].check(node, program)

    where = f"partition function {getattr(function, '__name__', function)!s} for {program.method}"
    found: dict[str, list[list[Node]]] = {name: [] for name in partitioners}
    claimed: set[Node] = set()
    for backend, members in function(program, ask):
        nodes = list(members)
        for node in nodes:
            if not isinstance(node, Node) or node.graph is not program.graph or node.op != "call_function":
                raise LoweringError(f"returned {node!r}, which is no operator of the program", where=where)
            if node in claimed:
                raise LoweringError(f"returned a node twice: {describe_node(node)}", where=where)
            claimed.add(node)
            answer = None if node.target is operator.getitem else ask(backend, node)
            if answer is not None and not answer.supported:
                raise LoweringError(
                    f"gives {backend} a node that it does not take: {describe_node(node)}",
                    where=where,
                    hint=answer.reason,
                )
        _check_convex(nodes, where)
        if nodes:
            found[backend].append(nodes)
    return {name: _Assigned(inner, found[name]) for name, inner in partitioners.items()}


def _check_convex(nodes: Sequence[Node], where: str) -> None:
    """Refuse a partition that a path leaves and enters again: it could run neither before nor behind that path."""
    # The results of an operator with several go where it goes.
    inside = {*nodes, *(user for node in nodes for user in node.users if user.target is operator.getitem)}
    behind = {user for node in inside for user in node.users if user not in inside}
    waiting = list(behind)
    while waiting:
        node = waiting.pop()
        for user in node.users:
            if user in inside:
                raise LoweringError(
                    f"returned a partition that depends on itself through {describe_node(node)}", where=where
                )
            if user not in behind:
                behind.add(user)
                waiting.append(user)


class _Assigned:
    """A partitioner with given partitions."""

    def __init__(self, inner: Partitioner, partitions: Sequence[Collection[Node]]) -> None:
        self._inner = inner
        self._partitions = partitions
        self._nodes = {node for partition in partitions for node in partition}

    def keep_operators(self) -> Collection[str]:
        return self._inner.keep_operators()

    def check(self, node: Node, program: ProgramView) -> Verdict:
        if node not in self._nodes:
            return Verdict.no("the partition function does not give it this operator")
        # The user wants it there, alone or not.
        return replace(self._inner.check(node, program), passenger=False, group=())

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]]:
        return self._partitions
