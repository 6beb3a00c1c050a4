"""State kept in delegates: options under which a delegate keeps buffers that it does not keep with those of the run.

A backend that keeps no buffer with the run's own options shows nothing about state. So the rooms of state run with such
options, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.export import ExportedProgram

import delegatekit
from delegatekit import Compiling
from delegatekit.plugins import LoadedBackend

from ..context import Context
from ..outcome import Outcome, Verdict
from .base import Case, NotApplicable
from .contract.options import values_of
from .specimens import compiles, delegates, missing_compiler
from .subjects import SubjectCase


class _Buffers(nn.Module):
    """Buffers of several types and first values, each updated on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.zeros, self.numbers = nn.Buffer(torch.zeros(4, 6)), nn.Buffer(torch.ones(4, 6))
        self.short = nn.Buffer(torch.zeros(4, 6, dtype=torch.float16))
        self.count = nn.Buffer(torch.zeros(2, dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.zeros.mul_(0.5).add_(x)
        self.numbers.mul_(0.5).add_(x)
        self.short.mul_(0.5).add_(x.half())
        self.count.add_(1)
        return self.zeros + x, self.numbers + x, self.short + x.half(), self.count + 0


@cache
def _exported() -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(_Buffers(), (torch.zeros(4, 6),), strict=False)


def choices(context: Context) -> Iterator[Mapping[str, Any]]:
    """The options of every target, and every value of every option that can be listed, each beside the run's; none for
    which nothing can be compiled on this computer."""
    backend = compiles(context)
    found = [context.for_target(target) for target in backend.targets()]
    found += [context.beside({name: value}) for name, value in values_of(backend.description.options)]
    return (chosen.options for chosen in found if not missing_compiler(chosen))


_FOUND: WeakKeyDictionary[LoadedBackend, dict[str, Mapping[str, Any] | None]] = WeakKeyDictionary()


def keeping(context: Context) -> Context:
    """The context with the first options under which a delegate keeps a buffer that it does not keep without them.

    Raises NotApplicable if there are none.
    """
    backend = compiles(context)
    if not backend.description.owns_state:
        raise NotApplicable("the backend's delegates keep no buffers")
    table = _FOUND.setdefault(backend, {})
    key = repr(context.option_items)
    if key not in table:
        known = _kept(context)
        found = (options for options in choices(context) if _kept(replace(context, options=options)) - known)
        table[key] = next(found, None)
    options = table[key]
    if options is None:
        raise NotApplicable("under no option the backend's delegates keep other buffers than with the run's own")
    return replace(context, options=options)


def _kept(context: Context) -> frozenset[str]:
    """The buffers that delegates keep; none where the options are refused, or where lowering fails."""
    try:
        program = delegatekit.lower(
            _exported(),
            backends=[context.backend],
            options={context.backend: context.options},
            compiling=Compiling(cache=False),
        )
    except Exception:  # the room of options reports it
        return frozenset()
    return frozenset(node.name for one in delegates(program, context.backend) for node in one.partition.buffers)


class KeptState(Case):
    """Cases with state, with options under which delegates keep buffers that they do not keep with those of the run."""

    name = "state/kept-with-an-option"

    def __init__(self, cases: Mapping[str, SubjectCase]) -> None:
        self._cases = cases

    @property
    def cost(self) -> float:
        """Those of the cases."""
        return sum(case.cost for case in self._cases.values())

    def examples(self, context: Context) -> Sequence[str]:
        """Names of the cases."""
        return list(self._cases)

    def run(self, example: str, context: Context) -> Outcome:
        """Try the case with the options."""
        try:
            found = keeping(context)
        except NotApplicable as reason:
            return Outcome(Verdict.NOT_APPLICABLE, str(reason), example=example)
        return replace(self._cases[example].run("", found), example=example)

    def snippet(self, example: str, context: Context) -> str:
        """The case's own, with the options."""
        try:
            return self._cases[example].snippet("", keeping(context))
        except NotApplicable:
            return ""
