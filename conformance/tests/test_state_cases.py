"""Cases with state: they agree with eager over several calls, and a missing write is found."""

from __future__ import annotations

import pytest
import torch

from delegatekit_conformance.cases.base import NotApplicable
from delegatekit_conformance.cases.keeping import KeptState, keeping
from delegatekit_conformance.cases.state import cases, state
from delegatekit_conformance.context import Context
from delegatekit_conformance.outcome import Verdict

CONTEXT = Context("reference")


@pytest.mark.parametrize("name", state.cases)
def test_cases_agree_with_eager(name: str) -> None:
    outcome = state.cases[name].run("", CONTEXT)
    assert outcome.verdict in (Verdict.DELEGATED, Verdict.PARTLY, Verdict.FALLBACK), outcome
    assert not outcome.core


@pytest.mark.parametrize("name", state.cases)
def test_without_its_state_every_case_gives_other_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call on a fresh program, as if nothing had been kept."""
    from delegatekit_conformance import trial

    load = trial.delegatekit.load

    class Forgetful:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def run(self, inputs: tuple[torch.Tensor, ...]) -> object:
            return load(self.data)["forward"].run(inputs)

    monkeypatch.setattr(trial.delegatekit, "load", lambda data: {"forward": Forgetful(data)})
    outcome = state.cases[name].run("", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH
    assert outcome.detail.startswith("call ")


def test_a_snippet_starts_from_the_first_state(capsys: pytest.CaptureFixture[str]) -> None:
    code = state.cases["counter"].snippet("", CONTEXT)
    exec(compile(code, "snippet", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    errors = [
        float(line.split("relative to the largest value ")[1].split()[0]) for line in lines if "output 0:" in line
    ]
    assert len(errors) == 4 and max(errors) < 1e-6


def test_options_with_which_delegates_keep_state_are_sought() -> None:
    pytest.importorskip("coremltools")
    found = keeping(Context("coreml", options={"debug_files": True}))
    assert found.options == {"debug_files": True, "target": "ios18"}
    (case,) = [case for case in cases() if isinstance(case, KeptState)]
    assert case.run("accumulate", Context("coreml")).verdict in (Verdict.DELEGATED, Verdict.PARTLY)
    assert "options={'coreml': {'target': 'ios18'}}" in case.snippet("accumulate", Context("coreml"))


@pytest.mark.parametrize("backend", ["reference", "vulkan"])
def test_where_an_option_changes_nothing_of_state_nothing_is_tried(backend: str) -> None:
    with pytest.raises(NotApplicable):
        keeping(Context(backend))
    (case,) = [case for case in cases() if isinstance(case, KeptState)]
    assert case.run("accumulate", Context(backend)).verdict is Verdict.NOT_APPLICABLE
