"""Values of options that act as the default are reported, and count as lost if they had an effect before."""

from __future__ import annotations

import pytest

from delegatekit_conformance.cases.effects import EffectCase, cases_for
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.declaration import ACTS_AS
from delegatekit_conformance.looseness import of_options
from delegatekit_conformance.outcome import CaseResult, Verdict

CONTEXT = Context("reference", PROFILES["quick"])


def test_a_value_that_changes_a_program_acts() -> None:
    (case,) = cases_for(CONTEXT)
    assert case.name == "options/effect:decompose=true"
    (example,) = case.examples(CONTEXT)
    outcome = case.run(example, CONTEXT)
    assert outcome.verdict is Verdict.PASSED
    assert outcome.detail.startswith("changes ")


def test_a_value_that_acts_as_the_default_is_told() -> None:
    case = EffectCase("decompose", False, False, 0)
    outcome = case.run(case.examples(CONTEXT)[0], CONTEXT)
    assert outcome.verdict is Verdict.NOT_APPLICABLE
    result = CaseResult(case.name, {"room": "options"}, {outcome.verdict: 1}, detail=outcome.detail)
    (told,) = of_options([result])
    assert told.what == "decompose = false"
    assert told.measured.startswith(ACTS_AS)


@pytest.mark.parametrize("profile", ["quick", "default"])
def test_no_value_is_asked_twice(profile: str) -> None:
    names = [case.name for case in cases_for(Context("reference", PROFILES[profile]))]
    assert len(names) == len(set(names))
