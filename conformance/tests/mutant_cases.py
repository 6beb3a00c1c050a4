"""Cases about the plugin of the tests of mutants: each calls one of its functions with a few numbers."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from delegatekit_conformance.cases import Case, NotApplicable, Rule
from delegatekit_conformance.cases.fresh import in_fresh_process
from delegatekit_conformance.context import Context
from delegatekit_conformance.outcome import Outcome, Verdict

#: The plugin: a package with one module that computes.
PACKAGE = "seeded_toy"
SUMS = """LIMIT = 5


def double(x):
    if x > LIMIT:
        return x * 2
    return x + x


def count_down(x):
    while x > 0:
        x -= 1
    return x


def unused(x):
    return x + 1
"""


@dataclass(frozen=True)
class Sum(Case):
    """A function of the plugin gives the right results."""

    name: str
    right: Callable[[int], int]
    numbers: tuple[int, ...]

    def examples(self, context: Context) -> Sequence[int]:
        return self.numbers

    def run(self, example: int, context: Context) -> Outcome:
        function = getattr(import_module(f"{PACKAGE}.sums"), self.name.partition("/")[2])
        result = function(example)
        if result == self.right(example):
            return Outcome(Verdict.DELEGATED)
        return Outcome(Verdict.MISMATCH, f"{result}, not {self.right(example)}", blame="backend")


@dataclass(frozen=True)
class Busy(Sum):
    """It takes 50 ms. In one that takes no time, any result of the function is right."""

    seconds: float = 0.05

    def run(self, example: int, context: Context) -> Outcome:
        start = time.process_time()
        while time.process_time() < start + self.seconds:
            pass
        outcome = super().run(example, context)
        return outcome if self.seconds else Outcome(Verdict.DELEGATED)


@dataclass(frozen=True)
class Settled(Sum):
    """With examples that come after the first, where these do not settle the case."""

    after: tuple[int, ...] = ()

    def further(self, first: Sequence[int], context: Context) -> Sequence[int]:
        return self.after

    def is_settled(self, tried: Sequence[Outcome], context: Context) -> bool:
        return not self.after


def twice(x: int) -> int:
    return 2 * x


def nothing(x: int) -> int:
    return 0


def elsewhere(context: Context) -> str:
    """A fresh process doubles 7, too."""
    script = f"from {PACKAGE} import sums\nanswer['seven'] = sums.double(7)\nanswer['file'] = sums.__file__"
    answer = in_fresh_process(script, context, torch_free=True).answer
    if answer["seven"] != 14:
        raise ValueError(f"{answer['seven']} by {answer['file']}")
    return "14"


def ended(context: Context) -> str:
    """A process that ends without a last step doubles 7, too."""
    script = f"import os; from {PACKAGE} import sums; os._exit(sums.double(7))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 14
    return "14"


def never(context: Context) -> str:
    """Concerns nothing."""
    raise NotApplicable("no such thing")


def source(context: Context) -> Mapping[str, Case]:
    """All of them."""
    cases = (
        Sum("sums/double", twice, (1, 3, 7)),
        Sum("sums/count_down", nothing, (4,)),
        Rule("manners/elsewhere", elsewhere),
        Rule("manners/never", never),
    )
    return {case.name: case for case in cases}


def in_this_process(context: Context) -> Mapping[str, Case]:
    """Those that start no other process."""
    return {name: case for name, case in source(context).items() if name.startswith("sums")}


def with_other_numbers(context: Context) -> Mapping[str, Case]:
    """The same, and one of them with another number."""
    return {**in_this_process(context), "sums/double": Sum("sums/double", twice, (1, 3, 8))}


def in_two_parts(context: Context) -> Mapping[str, Case]:
    """One whose first example settles it, and one whose does not."""
    cases = (Settled("more/double", twice, (2,), after=(8, 9)), Settled("settled/double", twice, (2,)))
    return {case.name: case for case in cases}


def with_more_in_default(context: Context) -> Mapping[str, Case]:
    """Two with a further example in later profiles; that of the second is always faulty."""
    quick = context.profile.name == "quick"
    numbers, others = ((2,), (0,)) if quick else ((2, 7), (9,))
    cases = (Sum("sums/double", twice, numbers), Sum("wrong/double", nothing, others))
    return {case.name: case for case in cases}


def with_one_that_finds_it_among_others(context: Context) -> Mapping[str, Case]:
    """Two, of which only the slow one checks the result."""
    cases = (Busy("strict/double", twice, (8,)), Busy("sums/double", twice, (7,), seconds=0.0))
    return {case.name: case for case in cases}


@dataclass(frozen=True)
class Work(Case):
    """Two operator calls in delegates of this many operators."""

    name: str
    operators: int

    def examples(self, context: Context) -> Sequence[int]:
        return (4,)

    def run(self, example: int, context: Context) -> Outcome:
        done = Outcome(Verdict.DELEGATED, delegated_nodes=2, delegate_bytes=8, delegate_operators=self.operators)
        if self.name != "sums/careful":
            return done
        return replace(done, damages_refused=3, insides=("5eed 1 add", "0dd 2 sub"))


def working(context: Context) -> Mapping[str, Case]:
    """One with as many operators as calls, one with more, and one with three refused damages."""
    cases = (Work("sums/double", 2), Work("sums/working", 3), Work("sums/careful", 2))
    return {case.name: case for case in cases}


def apart(context: Context) -> Mapping[str, Case]:
    """A rule whose process ends at once."""
    return {"manners/ended": Rule("manners/ended", ended)}
