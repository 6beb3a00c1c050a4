"""The user's say in partitioning: `only` and `skip` pin nodes to backends, and a function of his own forms partitions.

Both work by wrapping the backends' partitioners, so that partitioning itself knows nothing of them.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, TypeAlias

from torch.fx import Node

from delegatekit_api import BackendDescription, Call, LoweringError, Partitioner, ProgramView, Verdict
from delegatekit_api.nodes import describe_node, operator_name

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled
from ..edge.sizes import is_size_node
from ..foreign import as_ours
from ..misuse import WrongArgumentError
from .ask import ask_backends
from .foreign_sizes import lost_in_set
from .placement import Placed, Placement, check_names, checked_placement
from .restricted import Restricted

#: A module path with wildcards ("encoder.layers.*.attn": with all that is inside), an operator ("aten.linear.default",
#: "aten.linear" or "linear"), or a function that says whether it means a node. "module:NAME" and "operator:NAME" tell
#: which of the two a name is.
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
        partition: PartitionFunction | Placement | None = None,
        keep: Collection[str] | None = None,
    ) -> None:
        self._only = _by_backend("only", only, backends)
        self._skip = _by_backend("skip", skip, backends)
        self._backends = list(backends)
        self._keep = backends if keep is None else keep
        self._function = None if isinstance(partition, Mapping) else partition
        self._placement = checked_placement(partition, backends) if isinstance(partition, Mapping) else {}
        self._placed: dict[str, set[str]] = {method: set() for method in self._placement}
        self._names: set[str] = set()

    def kept(self, wishes: Mapping[str, Collection[str]]) -> frozenset[str]:
        """The operators that stay whole, of what backends wish for. Raises LoweringError for what nobody wishes for."""
        found: set[str] = set()
        for name in self._keep:
            asking = [backend for backend in wishes if name in (backend, *wishes[backend])]
            if not asking:
                raise WrongArgumentError(
                    f"keep names {name!r}, which is neither one of the backends {self._backends} nor an operator that "
                    "one of them asks for whole"
                )
            found.update(wishes.get(name, (name,)))
        return frozenset(found)

    def partitioners(
        self,
        edge: EdgeMethod,
        partitioners: Mapping[str, Partitioner],
        descriptions: Mapping[str, BackendDescription] | None = None,
    ) -> dict[str, Partitioner]:
        """The partitioners of the backends for this graph, as the user wants them."""
        nodes = [node for node in edge.graph.nodes if _is_choosable(node, edge)]
        self._names.update(name for node in nodes for name in (*operator_names(node), *module_paths(node)))
        for choice in self._choices():
            choice.look_at(nodes)
        pinned: dict[str, Partitioner] = {
            name: _Pinned(partitioner, self._only.get(name), self._skip.get(name, ()))
            if name in self._only or name in self._skip
            else partitioner
            for name, partitioner in partitioners.items()
        }
        places = self._placement.get(edge.name)
        if places is not None:
            self._placed[edge.name].update(node.name for node in nodes)
            pinned = {name: Placed(partitioner, name, places) for name, partitioner in pinned.items()}
        if self._function is None:
            return pinned
        return _assigned(self._function, edge, pinned, descriptions or {})

    def check_used(self) -> None:
        """Raise LoweringError for a selector that meant no node of any method, or both modules and operators."""
        for choice in self._choices():
            choice.check(self._names)
        check_names(self._placement, self._placed)

    def _choices(self) -> Iterator[Choice]:
        seen = dict.fromkeys(item for chosen in (self._only, self._skip) for items in chosen.values() for item in items)
        return iter(seen)


class Choice:
    """One selector of `only` or `skip`, and the nodes that it was found to mean."""

    def __init__(self, what: str, selector: Selector) -> None:
        self.text = f"{what}={_text(selector)}"
        self.selector = selector
        self.nodes: set[Node] = set()
        self._as_operator = self._as_module = self._different = False

    def look_at(self, nodes: Sequence[Node]) -> None:
        """Find out which of these nodes are meant. A function is called once for each."""
        for node in nodes:
            as_operator, as_module = self._meanings(node)
            if as_operator or as_module:
                self.nodes.add(node)
            self._as_operator |= as_operator
            self._as_module |= as_module
            self._different |= as_operator != as_module

    def check(self, names: Collection[str]) -> None:
        """Raise LoweringError if it meant nothing, or if it is not clear what."""
        if self._as_operator and self._as_module and self._different and isinstance(self.selector, str):
            raise WrongArgumentError(
                f"{self.text} is the name of operators and of a module",
                hint=f"write 'operator:{self.selector}' or 'module:{self.selector}'",
            )
        if self.nodes:
            return
        wanted = self.selector.partition(":")[2] or self.selector if isinstance(self.selector, str) else ""
        near = difflib.get_close_matches(wanted, sorted(names), 3) if wanted else []
        raise WrongArgumentError(
            f"{self.text} selects no operator",
            hint=f"did you mean {', '.join(near)}?"
            if near
            else "`delegatekit explain --all` lists modules and operators: what became a constant, or was merged with "
            "an equal operator of another module, does not exist any more",
        )

    def _meanings(self, node: Node) -> tuple[bool, bool]:
        """Whether it means the node by its operator, and by its module."""
        selector = self.selector
        if not isinstance(selector, str):
            with as_ours(
                lambda fault: LoweringError(f"selector {_text(selector)} failed: {fault}", where=describe_node(node))
            ):
                meant = bool(selector(node))
            return meant, meant
        kind, _, name = selector.rpartition(":")
        as_operator = kind in ("", "operator") and name in operator_names(node)
        pattern = name.split(".")
        as_module = kind in ("", "module") and any(_matches(pattern, path.split(".")) for path in module_paths(node))
        return as_operator, as_module


def _by_backend(what: str, selectors: Selectors | None, backends: Collection[str]) -> dict[str, tuple[Choice, ...]]:
    if selectors is None:
        return {}
    if isinstance(selectors, Mapping):
        strangers = set(selectors) - set(backends)
        if strangers:
            raise LoweringError(
                f"{what} names {', '.join(sorted(strangers))}, which is not among the backends {list(backends)}"
            )
        return {name: listed(what, items) for name, items in selectors.items()}
    return dict.fromkeys(backends, listed(what, selectors))


def listed(what: str, selectors: Sequence[Selector]) -> tuple[Choice, ...]:
    """The selectors that the argument `what` lists. Raises LoweringError for what is neither a list nor a selector."""
    if isinstance(selectors, str) or callable(selectors):
        raise LoweringError(f"{what}={_text(selectors)} is not a list", hint=f"write {what}=[{_text(selectors)}]")
    for selector in selectors:
        if not callable(selector) and not (isinstance(selector, str) and selector):
            raise LoweringError(
                f"{what} holds {selector!r}", hint="give a module path, an operator's name or a function of a node"
            )
        if isinstance(selector, str) and selector.rpartition(":")[0] not in ("", "operator", "module"):
            raise LoweringError(f"{what} holds {selector!r}", hint="write operator: or module: before the colon")
    return tuple(Choice(what, selector) for selector in selectors)


def _text(selector: Any) -> str:
    return repr(selector) if isinstance(selector, str) else getattr(selector, "__name__", repr(selector))


def _is_choosable(node: Node, edge: EdgeMethod) -> bool:
    """Whether backends are asked about a node."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and node not in edge.regions
        and not is_size_node(node)
        and not is_precompiled(node)
    )


def operator_names(node: Node) -> set[str]:
    """ "aten.linear.default", "aten.linear", "linear": of the node, and of the exported operator that it is part of."""
    found = set()
    for name in (operator_name(node), str(node.meta.get("source_operator", ""))):
        packet = name.rpartition(".")[0]
        found |= {name, packet, packet.partition(".")[2]}
    return found - {""}


def module_paths(node: Node) -> list[str]:
    """The paths of the node's module and of those around it, those included that are never called (a ModuleList)."""
    found: dict[str, None] = {}
    for path, _ in (node.meta.get("nn_module_stack") or {}).values():
        parts = str(path).split(".")
        found.update(dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts) + 1)))
    found.pop("", None)
    return list(found)


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    """Whether a path fits a pattern part by part; the part "**" stands for any number of parts."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_matches(pattern[1:], path[start:]) for start in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _matches(pattern[1:], path[1:])


class _Pinned(Restricted):
    """Asked about the nodes that `only` selects and `skip` does not."""

    def __init__(self, inner: Partitioner, only: tuple[Choice, ...] | None, skip: tuple[Choice, ...]) -> None:
        super().__init__(inner)
        self._only = only
        self._skip = skip

    def _refusal(self, node: Node) -> str | None:
        for choice in self._skip:
            if node in choice.nodes:
                return f"left out by {choice.text}"
        if self._only is not None and not any(node in choice.nodes for choice in self._only):
            return f"left out: only={', '.join(_text(choice.selector) for choice in self._only) or '[]'}"
        return None


# -- the user's own partitions ---------------------------------------------------------------------------------------


def _assigned(
    function: PartitionFunction,
    edge: EdgeMethod,
    partitioners: Mapping[str, Partitioner],
    descriptions: Mapping[str, BackendDescription],
) -> dict[str, Partitioner]:
    """Partitioners that take what the user's function gives them, and nothing else."""
    program = edge.view
    where = f"partition function {getattr(function, '__name__', function)!s} for {program.method}"
    answers: dict[tuple[str, Node], Verdict] = {}

    def ask(backend: str, node: Node) -> Verdict:
        """What the backend says about a node; about the result of an operator with several, what it says of that."""
        if backend not in partitioners:
            raise LoweringError(f"{backend!r} is not among the backends {list(partitioners)}", where=where)
        node = _producer(node)
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


def _producer(node: Any) -> Any:
    """The operator whose result a getitem picks; another node itself."""
    while isinstance(node, Node) and node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def _check_complete(
    nodes: Sequence[Node], answers: Mapping[tuple[str, Node], Verdict], backend: str, where: str
) -> None:
    """Refuse a partition that tears apart what belongs together."""
    inside = set(nodes)
    for node in nodes:
        for other in (_producer(node), *answers[backend, _producer(node)].group):
            if _producer(other) not in inside:
                raise LoweringError(
                    f"gives {backend} {describe_node(node)} without {describe_node(_producer(other))}, "
                    "which goes with it",
                    where=where,
                )


def _check_order(program: ProgramView, partitions: Sequence[tuple[str, Sequence[Node]]], where: str) -> None:
    """Refuse partitions that depend on themselves, or on each other in a circle: none of them could run first."""
    # A vertex is a partition's number, or a node in none; results go with their operator.
    vertex: dict[Node, Any] = {node: number for number, (_, nodes) in enumerate(partitions) for node in nodes}
    before: dict[Any, dict[Any, Node]] = {}
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        own = vertex[node] = vertex.get(_producer(node), _producer(node))
        sources = before.setdefault(own, {})
        for argument in node.all_input_nodes:
            source = vertex.get(argument, vertex.get(_producer(argument)))
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
    """Raise for a circle of vertices, each one a source of the one in front of it, the first one also the last."""
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
            # The user wants it there, alone or not; that groups are whole was checked.
            return replace(answer, passenger=False, group=())
        left = Verdict.no("the partition function does not give it this operator")
        return left if isinstance(answer, Verdict) and answer.supported else answer

    def propose(self, program: ProgramView) -> Sequence[Collection[Node]]:
        return self._partitions
