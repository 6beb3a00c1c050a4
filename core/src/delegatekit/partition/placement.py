"""A placement of operators on backends, by name. Partitions grow from it as usual."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from torch.fx import Node

from delegatekit_api import Partitioner

from ..errors.misuse import WrongArgumentError
from .restricted import Restricted

#: Method -> name of a node of its edge program -> the assigned backend, "" for none; other nodes are open to all.
Placement: TypeAlias = Mapping[str, Mapping[str, str]]


def checked_placement(placement: Placement, backends: Collection[str]) -> Placement:
    """The placement itself. Raises LoweringError for an invalid one, or one that names unknown backends."""
    for method, places in placement.items():
        for name, backend in places.items() if isinstance(places, Mapping) else ((places, places),):
            if backend != "" and backend not in backends:
                raise WrongArgumentError(
                    f"partition places {name} of {method} on {backend!r}, which is not among the backends "
                    f"{list(backends)}",
                    hint='write {method: {operator: backend}}, "" for the runtime',
                )
    return placement


def check_names(placement: Placement, known: Mapping[str, Collection[str]]) -> None:
    """Raise LoweringError if a method has no operator of a name; `known` are the names of each method."""
    for method, places in placement.items():
        unknown = sorted(set(places) - set(known[method]))
        if unknown:
            raise WrongArgumentError(
                f"partition places {unknown[0]}, which is no operator of method {method}",
                hint="a placement that was measured is of one program and version: tune again",
            )


class Placed(Restricted):
    """Asked only about the nodes that a placement gives to its backend, and about those that it does not name."""

    def __init__(self, inner: Partitioner, backend: str, places: Mapping[str, str]) -> None:
        super().__init__(inner)
        self._backend = backend
        self._places = places

    def _refusal(self, node: Node) -> str | None:
        owner = self._places.get(node.name, self._backend)
        return None if owner == self._backend else f"placed on {owner or 'the runtime'}"
