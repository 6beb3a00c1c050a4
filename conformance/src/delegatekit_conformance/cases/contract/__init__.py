"""The contract: rules of the plugin interface that hold for every backend, whichever programs it takes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from ..base import Case

#: The modules with the rules, in the order of reports.
_ROOMS = (
    *("description", "options", "partitioner", "compiler", "separate", "determinism", "identities"),
    *("runtime", "missing", "handles", "process", "checkers", "texts"),
)


def cases() -> Iterator[Case]:
    """All rules."""
    for room in _ROOMS:
        yield from import_module(f"{__name__}.{room}").RULES
