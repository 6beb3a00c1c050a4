"""Common behavior of all cases: the trial of an example."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import pytest

from delegatekit_conformance.cases.base import Case
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Outcome, Verdict


class _Device:
    """A resource of which a process can have one; it refers to itself, as objects held by an exception do."""

    def __init__(self) -> None:
        self.itself = self


class _OneAtATime(Case):
    name = "toy/one-at-a-time"

    def __init__(self, refusal: Outcome) -> None:
        self.refusal = refusal
        self.runs = 0
        self.loaded = weakref.ref(_Device())

    def examples(self, context: Context) -> Sequence[str]:
        return [""]

    def run(self, example: str, context: Context) -> Outcome:
        self.runs += 1
        return self.refusal if self.loaded() is not None else Outcome(Verdict.PASSED)


UNAVAILABLE = Outcome(Verdict.UNAVAILABLE, "it is one chip at a time")
IN_A_RULE = Outcome(Verdict.VIOLATION, "RuntimeUnavailableError: it is one chip at a time", blame="backend")


@pytest.mark.parametrize("refusal", [UNAVAILABLE, IN_A_RULE], ids=["trial", "rule"])
def test_what_nobody_refers_to_any_more_stands_in_no_examples_way(refusal: Outcome) -> None:
    gc.disable()
    try:
        case = _OneAtATime(refusal)
        outcome = case.tried("", Context("reference", PROFILES["quick"], stock=False))
    finally:
        gc.enable()
    assert outcome.verdict is Verdict.PASSED
    assert case.runs == 2


def test_a_refusal_for_good_is_told_after_the_second_time() -> None:
    case = _OneAtATime(UNAVAILABLE)
    kept = _Device()
    case.loaded = weakref.ref(kept)
    outcome = case.tried("", Context("reference", PROFILES["quick"], stock=False))
    assert outcome.verdict is Verdict.UNAVAILABLE
    assert case.runs == 2
