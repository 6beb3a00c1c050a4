"""Programs that are given quantized: their trials, and the faults found."""

from __future__ import annotations

import pytest
import torch

from delegatekit_conformance.cases import given
from delegatekit_conformance.cases.quantized import NO_SCHEMES
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_xnnpack.ir import builder
from delegatekit_xnnpack.ir.graph import Value

CASES = {case.name.partition("-")[2]: case for case in given.cases()}
CONTEXT = Context("xnnpack", PROFILES["quick"])


@pytest.mark.parametrize("name", CASES)
def test_a_sound_backend_computes_with_the_numbers(name: str) -> None:
    assert CASES[name].examples(CONTEXT) == ("int8",)
    outcome = CASES[name].run("int8", CONTEXT)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY), outcome.detail
    assert outcome.delegates


def test_integers_that_are_taken_for_numbers_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_they_are(value: Value) -> torch.Tensor:
        assert value.data is not None
        return value.data.float()

    monkeypatch.setattr(builder, "numbers", as_they_are)
    outcome = CASES["constants"].run("int8", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH and "show('quantized/given-constants'" in outcome.snippet


def test_backends_without_schemes_are_not_asked() -> None:
    context = Context("reference", PROFILES["quick"])
    assert CASES["rows"].examples(context) == (NO_SCHEMES,)
    assert CASES["rows"].run(NO_SCHEMES, context).verdict is Verdict.NOT_APPLICABLE
