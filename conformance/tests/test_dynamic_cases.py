"""Cases with sizes that change and with control flow: they agree with eager, and call in a changing order of sizes."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from delegatekit_conformance.cases.control_flow import flow
from delegatekit_conformance.cases.dynamic import dynamic
from delegatekit_conformance.context import Context
from delegatekit_conformance.outcome import Verdict

CONTEXT = Context("reference")
GOOD = (Verdict.DELEGATED, Verdict.PARTLY, Verdict.FALLBACK)
QUICK = ("elementwise", "conv-image", "cond", "while-loop")
CASES = {**dynamic.cases, **flow.cases}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_cases_agree_with_eager(name: str) -> None:
    outcome = CASES[name].run("", CONTEXT)
    assert outcome.verdict in GOOD, outcome
    assert not outcome.core


@pytest.mark.sweep
@pytest.mark.parametrize("name", dynamic.cases)
def test_sizes_go_down_and_up_and_come_again(name: str) -> None:
    calls = dynamic.cases[name].subject().calls
    sizes = [sum(value.numel() for value in inputs if isinstance(value, torch.Tensor)) for inputs in calls]
    steps = [after - before for before, after in pairwise(sizes)]
    assert min(steps) < 0 < max(steps)
    assert len(set(sizes)) < len(sizes)


@pytest.mark.parametrize("name", ["cond", "cond-nested", "while-loop"])
def test_branches_give_different_results(name: str) -> None:
    """Otherwise a wrong choice would not be visible."""
    subject = flow.cases[name].subject()
    flags = [tuple(value.item() for value in inputs if value.dim() == 0) for inputs in subject.calls]
    assert len(set(flags)) > 1
    *_, tensor = subject.calls[0]
    seen = {repr(subject.module(*(value for value in inputs if value.dim() == 0), tensor)) for inputs in subject.calls}
    assert len(seen) == len(set(flags)) or name == "cond-nested"


def test_an_output_of_an_earlier_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from delegatekit_conformance import trial

    load = trial.delegatekit.load

    class Stale:
        """Gives the first call's results to all calls of the same sizes."""

        def __init__(self, method: object) -> None:
            self.method, self.known = method, {}  # type: ignore[var-annotated]

        def run(self, inputs: tuple[torch.Tensor, ...]) -> object:
            key = tuple(value.shape for value in inputs)
            if key not in self.known:
                # Copies: the result of `run` is overwritten by the next call.
                self.known[key] = [value.clone() for value in self.method.run(inputs)]  # type: ignore[attr-defined]
            return self.known[key]

    monkeypatch.setattr(trial.delegatekit, "load", lambda data: {"forward": Stale(load(data)["forward"])})
    outcome = dynamic.cases["linear"].run("", CONTEXT)
    assert outcome.verdict is Verdict.MISMATCH
    assert outcome.detail.startswith("call 4:")
