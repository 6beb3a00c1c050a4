"""Lowering a program of each kind again and again: objects that it leaves alive, counted.

Few lowerings suffice: objects are counted, not measured, so there is no noise.
"""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import delegatekit
from delegatekit import Compiling
from delegatekit_api import DelegateKitError

from ...context import Context
from ...outcome import Outcome, Verdict
from ...trial import words
from ..base import Case, NotApplicable
from ..kinds import Kind, exported, kinds, lower_kind
from ..specimens import backend_of, compiles
from .meters import counted, still_heap, temporary_folder

#: Lowerings before the first count, those that are counted one by one, and further ones where something grows:
#: more than any cache of programs holds.
_FIRST, _COUNTED, _MORE = 3, 12, 120
#: The same in the quick profile, for those that are counted.
_QUICK = 6
#: Lowerings needed for a verdict, if a profile's time for a history (CPU seconds) does not suffice for all.
_FEWEST = 4
#: Least share of the first objects that a kept program continues to keep.
_GOES_ON = 0.5
#: Parts of programs: a sound lowering leaves none behind.
_PARTS = (torch.fx.Graph, torch.fx.Node, torch.nn.Module, torch.Tensor, ExportedProgram)

Counts = Mapping[str, int]


class LoweringsCase(Case):
    """Lowers a program of each kind; an example is a kind."""

    name = "growth/lowerings"

    @property
    def cost(self) -> float:
        """Some dozens of lowerings for each kind."""
        return 8.0

    def examples(self, context: Context) -> Sequence[Kind]:
        """All kinds, also those that the backend may not take."""
        return list(kinds(context))

    def tried(self, example: Kind, context: Context) -> Outcome:
        """`run`: watching the hooks' settings would keep their results alive."""
        return self.run(example, context)

    def run(self, example: Kind, context: Context) -> Outcome:
        """Lower it again and again, and count."""
        start = time.perf_counter()
        verdict, detail = self._judged(example, context)
        blame = "backend" if verdict.is_fault else ""
        return Outcome(verdict, detail, example.describe(), blame, seconds=time.perf_counter() - start)

    def _judged(self, example: Kind, context: Context) -> tuple[Verdict, str]:
        try:
            compiles(context)
            lower_kind(example, context)
        except NotApplicable as reason:
            return Verdict.NOT_APPLICABLE, str(reason)
        except Exception as error:  # other rooms report it
            return Verdict.NOT_APPLICABLE, f"there is nothing to begin with: {words(error)}"
        backend = backend_of(context)
        options = backend.make_options(context.options)
        made = (options, backend.create_partitioner(options))
        packages = frozenset(type(item).__module__.partition(".")[0] for item in made)
        quick = context.profile.name == "quick"
        wanted = _QUICK if quick else _COUNTED
        with temporary_folder() as folder, still_heap():
            count = partial(_alive, packages, folder)
            unit: Callable[[], Any] = partial(lower_kind, example, context)
            try:
                found, units = growing(unit, count, wanted, context.profile.growth_seconds)
            except NotApplicable as reason:
                return Verdict.NOT_APPLICABLE, str(reason)
            except DelegateKitError as error:
                return Verdict.VIOLATION, f"fails after some lowerings: {words(error)}"
            if found:
                found = {name: number for name, number in found.items() if not _is_cores(name, example, context, count)}
        if found:
            told = ", ".join(f"{number:.3g} {name}" for name, number in list(found.items())[:4])
            return Verdict.VIOLATION, f"each lowering leaves behind {told}, and it goes on ({units} lowerings)"
        return Verdict.PASSED, f"{units} lowerings"


def growing(unit: Callable[[], Any], count: Callable[[], Counts], wanted: int, budget: float) -> tuple[Counts, int]:
    """The kinds of objects that each unit leaves more of, by name, and the number of units.

    `wanted` units are counted one by one, or as many as fit into `budget` CPU seconds. Raises NotApplicable if too few
    do.
    """
    unit()
    begin = sum(os.times()[:4])
    for _ in range(_FIRST - 1):
        unit()
    each = (sum(os.times()[:4]) - begin) / (_FIRST - 1)
    if each * _FEWEST > budget:
        raise NotApplicable(f"too slow: a lowering takes {each:.2f} CPU seconds")
    counts = [count()]
    number = max(_FEWEST, min(wanted, int(budget / max(each, 1e-6))))
    for _ in range(number):
        unit()
        counts.append(count())
    rates = {name: _least(name, counts) for name in counts[-1]}
    suspects = {name: rate for name, rate in rates.items() if rate > 0}
    units = _FIRST + number
    if not suspects:
        return {}, units
    for _ in range(_MORE):
        unit()
    after = count()
    blamed = {
        name: rate for name, rate in suspects.items() if after[name] - counts[-1][name] >= _GOES_ON * rate * _MORE
    }
    return blamed, units + _MORE


def _least(name: str, counts: Sequence[Counts]) -> int:
    return min(after.get(name, 0) - before.get(name, 0) for before, after in pairwise(counts))


def _alive(packages: frozenset[str], folder: Path) -> Counts:
    """Counts of living parts of programs, objects of the plugin's own classes, and scarce system resources."""
    gc.collect()
    found = Counter(counted(folder))
    kinds_of: dict[type, str] = {}
    for item in gc.get_objects():
        kind = type(item)
        if kind not in kinds_of:
            kinds_of[kind] = _name(kind, packages)
        found[kinds_of[kind]] += 1
    del found[""]
    return found


def _name(kind: type, packages: frozenset[str]) -> str:
    """The name under which objects of a class are counted; empty if they are not."""
    module = kind.__dict__.get("__module__", "")
    own = isinstance(module, str) and module.partition(".")[0] in packages
    return f"{module}.{kind.__qualname__}" if own or issubclass(kind, _PARTS) else ""


def _is_cores(name: str, example: Kind, context: Context, count: Callable[[], Counts]) -> bool:
    """True if lowering without the backend leaves the same behind."""
    counts = []
    for _ in range(_FIRST + _FEWEST):
        with suppress(DelegateKitError):  # an operator without a runtime kernel is not a fault
            delegatekit.lower(exported(example, context), backends=[], compiling=Compiling(cache=False))
        counts.append(count())
    return _least(name, counts[_FIRST:]) > 0
