"""Runs the passes over a backend's graph by one explicit list, with the graph's own checks in between."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from delegatekit_api import DelegateKitError, LoweringError

#: The environment variable with which DelegateKit turns the checks at stage borders on (`--debug` sets it).
VERIFY: Final = "DELEGATEKIT_VERIFY"

GraphT = TypeVar("GraphT")


def run_passes(
    graph: GraphT,
    passes: Iterable[Callable[[GraphT], GraphT | None]],
    verify: Callable[[GraphT], Any] | None = None,
) -> GraphT:
    """The graph after all passes, in order. A pass changes the graph in place, or returns another one.

    `verify` raises if the graph is not sound. It is called before the first pass and after each one if the environment
    variable DELEGATEKIT_VERIFY is set, as it is in tests and with `--debug`; a LoweringError then names the pass.

    >>> def drop_zeros(numbers: list[int]) -> list[int]:
    ...     return [number for number in numbers if number]
    ...
    >>> run_passes([3, 0, 2], [drop_zeros, list.sort])
    [2, 3]
    """
    checks = verify if os.environ.get(VERIFY) else None
    _check(checks, graph, "before the passes")
    for apply in passes:
        made = apply(graph)
        graph = graph if made is None else made
        _check(checks, graph, f"after the pass {_name(apply)}")
    return graph


def _check(verify: Callable[[GraphT], Any] | None, graph: GraphT, where: str) -> None:
    if verify is None:
        return
    try:
        verify(graph)
    except DelegateKitError as error:
        what = error.what if error.where is None else f"{error.where}: {error.what}"
        raise LoweringError(what, where=where, hint=error.hint) from error


def _name(function: Any) -> str:
    inner = getattr(function, "func", function)  # functools.partial
    return str(getattr(inner, "__name__", inner))
