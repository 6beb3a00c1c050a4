"""The user's options of partitioning: `only` and `skip` pin nodes to backends, and functions and placements decide.

All work by wrapping the backends' partitioners, so that partitioning itself is independent of them.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from torch.fx import Node

from delegatekit_api import BackendDescription, LoweringError, Partitioner

from ..edge import EdgeMethod
from ..edge.precompiled import is_precompiled
from ..edge.sizes import is_size_node
from ..errors.misuse import WrongArgumentError
from .assigned import PartitionFunction, assigned
from .placement import Placed, Placement, check_names, checked_placement
from .restricted import Restricted
from .selectors import Choice, Selector, listed, module_paths, operator_names, text_of

#: Selectors for all backends, or for each by name.
Selectors: TypeAlias = Sequence[Selector] | Mapping[str, Sequence[Selector]]


class Selection:
    """The arguments `only`, `skip` and `partition` of a lowering. Raises LoweringError for invalid ones."""

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
        """The operators not to decompose, among the backends' requests. Raises LoweringError for unrequested ones."""
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
        """The partitioners of the backends for this graph, with the user's selection."""
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
        return assigned(self._function, edge, pinned, descriptions or {})

    def check_used(self) -> None:
        """Raise LoweringError for a selector that matched no node of any method, or both modules and operators."""
        for choice in self._choices():
            choice.check(self._names)
        check_names(self._placement, self._placed)

    def _choices(self) -> Iterator[Choice]:
        seen = dict.fromkeys(item for chosen in (self._only, self._skip) for items in chosen.values() for item in items)
        return iter(seen)


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


def _is_choosable(node: Node, edge: EdgeMethod) -> bool:
    """True if backends are asked about a node."""
    return (
        node.op == "call_function"
        and node.target is not operator.getitem
        and node not in edge.regions
        and not is_size_node(node)
        and not is_precompiled(node)
    )


class _Pinned(Restricted):
    """Asked only about the nodes that `only` selects and `skip` does not."""

    def __init__(self, inner: Partitioner, only: tuple[Choice, ...] | None, skip: tuple[Choice, ...]) -> None:
        super().__init__(inner)
        self._only = only
        self._skip = skip

    def _refusal(self, node: Node) -> str | None:
        for choice in self._skip:
            if node in choice.nodes:
                return choice.reason
        if self._only is not None and not any(node in choice.nodes for choice in self._only):
            return f"left out: only={', '.join(text_of(choice.selector) for choice in self._only) or '[]'}"
        return None
