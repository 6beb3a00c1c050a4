"""Programs that stock ExecuTorch lowered for the backend's delegate id, run by the backend's own runtime.

A runtime that takes a delegate id which ExecuTorch has a compiler for meets files of that compiler. These have what the
backend's own compiler never writes: operators kept whole, names for numbers, other forms of the same call.
"""

from __future__ import annotations

from collections.abc import Iterator

from delegatekit.plugins import discovery

from ...context import Context
from ..base import Case, NotApplicable, Rule
from .compilers import FILE, ways_of
from .programs import ModuleCase, OperatorCase, operators, tried_groups

__all__ = ["cases_for"]


def cases_for(context: Context) -> Iterator[Case]:
    """Operators, and modules by group, for each way in which stock's compiler writes files."""
    ways = ways_of(context.backend)
    if not ways:
        yield Rule("foreign/stock-compiler", _not_here)
    for way in ways.values():
        for operator in operators(context, way):
            yield OperatorCase(way, operator)
        for group in tried_groups(context, way):
            yield ModuleCase(way, group)


def _not_here(context: Context) -> str:
    """The runtime runs the files of stock's compiler for its delegate id."""
    identifier = discovery.get_backend(context.backend).description.delegate_id
    raise NotApplicable(
        f"beside the plugin, no {FILE} says how a compiler of stock ExecuTorch for {identifier} is asked"
    )
