"""Asks the library whether it supports operations, in a process that lives as long as there are questions."""

from __future__ import annotations

from typing import Any, Final

from ..blob.installation import Missing, find_installation
from ..ir.graph import Graph
from .conversation import conversation
from .requests import describe


class Validator:
    """Asks about graphs for one set of options; equal ones share a process. Thread-safe.

    The process ends with the last of those that share it; answers are cached.
    """

    def __init__(self, options: bytes) -> None:
        found = find_installation()
        self._asked: Final = None if isinstance(found, Missing) else conversation(found, options)
        if self._asked is not None:
            self._asked.begin(self)

    def reason(self, graph: Graph) -> str | None:
        """The reason why the library refuses an operation of the graph; None if it accepts all, or cannot be asked.

        If it cannot be asked, nothing is compiled: `conversation.availability` has the reason.
        """
        return None if self._asked is None else self._asked.reason(_nameless(describe(graph)))


def _nameless(graph: dict[str, Any]) -> dict[str, Any]:
    """The same question for equal operations: their tensors' names do not matter."""
    return graph | {"tensors": [item | {"name": f"t{index}"} for index, item in enumerate(graph["tensors"])]}
