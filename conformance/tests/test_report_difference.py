"""Changes between two runs of a backend."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from delegatekit_api import FormatError
from delegatekit_conformance import report
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.run import BackendFacts, Run


def case(verdict: Verdict | None, name: str = "operators/a/float32", **fields: Any) -> CaseResult:
    counts = {verdict: 4} if verdict else {}
    faults = (Outcome(verdict, "off by one", blame="backend"),) if verdict and verdict.is_fault else ()
    return CaseResult(name, {"room": "operators"}, **{"counts": counts, "faults": faults} | fields)


def calls(delegated: int, fallback: int, size: int = 0, work: int = 0) -> CaseResult:
    """A partly delegated case with this many operator calls in delegates of this many bytes and operators."""
    return CaseResult(
        "operators/a/float32",
        {"room": "operators"},
        {Verdict.PARTLY: 4},
        delegated_nodes=delegated,
        fallback_calls=fallback,
        delegate_bytes=size,
        delegate_operators=work,
    )


def told(*lines: str) -> CaseResult:
    return replace(case(Verdict.DELEGATED), insides=lines)


def damage(refused: int, size: int = 1000) -> CaseResult:
    """A case of damaged delegates of this many bytes, with the number of refused ones."""
    return case(Verdict.PASSED, "robustness/a/replaced", delegate_bytes=size, damages_refused=refused)


def named(count: int, delegated: int = 9) -> CaseResult:
    """A case with this many delegated operators, of which debug handles name `count`."""
    return case(Verdict.DELEGATED, delegated_nodes=delegated, named_nodes=count)


def run(*results: CaseResult, **fields: Any) -> Run:
    facts = BackendFacts("acme", "delegatekit-acme", "2.1")
    versions = {"delegatekit-conformance": "0.1.0", "acme-compiler": "5.0"}
    return Run(facts, results, **{"versions": versions} | fields)


def groups(old: CaseResult, new: CaseResult) -> tuple[list[str], bool]:
    found = report.diff(run(old), run(new))
    return [change.group for change in found.changes], found.is_regression


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ((10, 1, 1, 1), (20, 1, 1, 1), ["slower"]),
        ((20, 1, 1, 1), (10, 1, 1, 1), ["faster"]),
        ((10, 1, 1, 1), (14, 1, 1, 1), []),  # within the threshold
        ((0.1, 1, 1, 1), (0.4, 1, 1, 1), []),  # less than half a second
        ((10, 1, 1, 1), (20, 2, 2, 2), []),  # as all others: a slower machine
        ((10, 1, 1, 1), (40, 2, 2, 2), ["slower"]),
        ((0, 1, 1, 1), (20, 1, 1, 1), []),  # an older suite did not measure
    ],
)
def test_cpu_time_is_compared_for_the_same_examples_and_with_other_cases(
    old: tuple[float, ...], new: tuple[float, ...], found: list[str]
) -> None:
    before, after = (
        run(*(case(Verdict.DELEGATED, f"operators/{number}/float32", cpu=cpu) for number, cpu in enumerate(times)))
        for times in (old, new)
    )
    told = report.diff(before, after)
    assert [change.group for change in told.changes] == found
    assert all(change.case == "operators/0/float32" for change in told.changes)
    assert report.diff(before, replace(after, seed=1)).changes == (), "other examples"
    assert not told.is_regression
    apart = max(sum(old), sum(new)) > 1.2 * min(sum(old), sum(new))
    assert any(name.startswith("CPU time") for name, _, _ in told.circumstances) is apart


MIXED = {Verdict.DELEGATED: 2, Verdict.FALLBACK: 2}
LESS = {Verdict.DELEGATED: 1, Verdict.FALLBACK: 3}
#: One of two programs ran in part; one that is taken whole could not be run.
RAN, UNSEEN = {Verdict.PARTLY: 2}, {Verdict.PARTLY: 1, Verdict.UNAVAILABLE: 1}
BOTH = {Verdict.MISMATCH: 1, Verdict.CRASH: 1}
CORE = (Outcome(Verdict.RUN_ERROR, core="run error: x", blame="core"),)


@pytest.mark.parametrize(
    "old, new, expected, regression",
    [
        (case(Verdict.DELEGATED), case(Verdict.DELEGATED), [], False),
        (case(Verdict.DELEGATED), case(Verdict.MISMATCH), ["faults"], True),
        (case(Verdict.MISMATCH), case(Verdict.MISMATCH), [], False),
        (case(Verdict.MISMATCH), case(None, counts=BOTH), ["faults"], True),
        (case(None, counts=BOTH), case(Verdict.MISMATCH), ["verdicts"], False),
        (case(Verdict.MISMATCH), case(Verdict.FALLBACK), ["fixed"], False),
        (case(Verdict.MISMATCH), case(Verdict.MISMATCH, expected="known"), ["verdicts"], False),
        (case(Verdict.MISMATCH, expected="known"), case(Verdict.MISMATCH), ["faults"], True),
        (case(Verdict.DELEGATED), case(Verdict.FALLBACK), ["lost"], True),
        (case(Verdict.DELEGATED), case(Verdict.PARTLY), ["lost"], True),
        (case(Verdict.FALLBACK), case(Verdict.REFUSED), ["lost"], True),
        (case(Verdict.FALLBACK), case(Verdict.DELEGATED), ["gained"], False),
        (case(None, counts=MIXED), case(None, counts=LESS), ["lost"], True),
        (case(None, counts=LESS), case(None, counts=MIXED), ["gained"], False),
        (case(None, counts=RAN), case(None, counts=UNSEEN), ["lost"], True),
        (case(None, counts={Verdict.PARTLY: 1, Verdict.FALLBACK: 1}), case(None, counts=UNSEEN), ["gained"], False),
        (calls(6, 0), calls(5, 1), ["lost"], True),
        (calls(5, 1), calls(6, 0), ["gained"], False),
        (calls(6, 0), calls(5, 0), [], False),  # two of them became one
        (calls(6, 0, 1000), calls(6, 0, 1200), ["larger"], False),
        (calls(6, 0, 1000), calls(6, 0, 1005), [], False),
        (calls(6, 0, 1000), calls(6, 0, 800), ["smaller"], False),
        (calls(6, 0, 1000), calls(7, 0, 2000), [], False),
        (calls(6, 0, 1000, 5), calls(6, 0, 1000, 6), ["more_work"], False),
        (calls(6, 0, 1000, 6), calls(6, 0, 1000, 5), ["less_work"], False),
        (calls(6, 0, 1000, 6), calls(7, 0, 1000, 7), [], False),
        (calls(6, 0, 1000, 0), calls(6, 0, 1000, 6), [], False),  # the old backend did not tell
        (replace(calls(1, 0), taken={"a": 1}), replace(calls(9, 0), taken={"b": 1}), ["more_work"], False),
        (replace(calls(9, 0), taken={"b": 1}), replace(calls(1, 0), taken={"a": 1}), ["less_work"], False),
        (replace(calls(9, 0), taken={"a": 1}), replace(calls(9, 0), taken={"b": 1}), [], False),
        (named(7), named(6), ["less_named"], False),
        (named(6), named(7), ["more_named"], False),
        (named(7), named(6, 8), [], False),  # other operators were delegated
        (damage(7), damage(6), ["less_careful"], False),
        (damage(6), damage(7), ["more_careful"], False),
        (damage(7), damage(6, 1001), [], False),  # other bytes were damaged
        (case(Verdict.FALLBACK, reasons=("a: b",)), case(Verdict.FALLBACK, reasons=("a: c",)), ["reasons"], False),
        (case(Verdict.FALLBACK, reasons=("a: b",)), case(Verdict.DELEGATED, reasons=("a: c",)), ["gained"], False),
        (told("5eed 1 add"), told("0dd 2 sub", "5eed 3 mul"), ["insides"], False),
        (told("5eed 1 add", "0dd 2 sub"), told("5eed 1 add", "beef 3 mul"), [], False),  # of other bytes
        (case(Verdict.PASSED), case(Verdict.NOT_APPLICABLE), ["lost"], True),
        (case(Verdict.DELEGATED), case(Verdict.UNAVAILABLE), ["lost"], True),
        (case(Verdict.UNAVAILABLE), case(Verdict.DELEGATED), ["gained"], False),
        (case(Verdict.PASSED), case(Verdict.VIOLATION), ["faults"], True),
        (case(Verdict.DELEGATED), case(Verdict.DELEGATED, core_faults=CORE), ["core"], False),
        (case(Verdict.DELEGATED), case(Verdict.DELEGATED, "operators/b/float32"), ["only_old", "only_new"], False),
        (case(Verdict.DELEGATED), case(Verdict.CRASH, "operators/b/float32"), ["faults", "only_old"], True),
    ],
)
def test_a_change_is_in_the_group_that_says_what_it_is(
    old: CaseResult, new: CaseResult, expected: list[str], regression: bool
) -> None:
    found, is_regression = groups(old, new)
    assert sorted(found) == sorted(expected)
    assert is_regression is regression


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ((1e-3, 1e-3), (1.4e-3, 1e-3), []),
        ((1e-3, 1e-3), (2e-3, 1e-3), ["slower"]),
        ((2e-3, 1e-3), (1e-3, 1e-3), ["faster"]),
        ((1e-3, 1e-3), (2e-3, 2e-3), []),  # a busy machine slows eager, too
        ((1e-3, 2e-3), (1e-3, 1e-3), []),  # another torch makes eager faster, not the backend slower
    ],
)
def test_times_change_beyond_noise(old: tuple[float, float], new: tuple[float, float], expected: list[str]) -> None:
    before, after = (case(Verdict.DELEGATED, latencies=(pair,)) for pair in (old, new))
    found = report.diff(run(before), run(after))
    assert [change.group for change in found.changes] == expected
    assert not found.is_regression
    assert found.is_slower is (expected == ["slower"])
    assert found.latency_threshold == 1.5


def test_the_threshold_of_times_can_be_chosen() -> None:
    before, after = (case(Verdict.DELEGATED, latencies=((time, 1e-3),)) for time in (1e-3, 1.3e-3))
    assert report.diff(run(before), run(after), latency_threshold=1.2).is_slower


def test_runs_that_are_hard_to_compare_are_warned_of() -> None:
    old = run(seed=1, profile="quick", versions={"delegatekit-conformance": "0.1.0", "acme-compiler": "4"})
    new = run(seed=2, profile="default", versions={"delegatekit-conformance": "0.2.0", "acme-compiler": "5"})
    found = report.diff(old, new)
    for words in ("the seed differs (1 and 2)", "the profile differs", "the suite's version differs (0.1.0 and 0.2.0)"):
        assert any(words in warning for warning in found.warnings)
    assert ("acme-compiler", "4", "5") in found.circumstances
    assert report.diff(old, old).warnings == ()
    assert any("devices differ" in warning for warning in report.diff(old, replace(old, device={"name": "B"})).warnings)


def test_what_one_run_could_not_see_for_want_of_a_runtime_is_no_change() -> None:
    old = run(case(Verdict.DELEGATED), case(Verdict.PASSED, "contract/handles"))
    facts = replace(old.backend, available=False)
    new = run(case(Verdict.UNAVAILABLE), case(Verdict.NOT_APPLICABLE, "contract/handles"))
    found = report.diff(old, replace(new, backend=facts))
    assert not found.changes
    assert any("whether the runtime is available" in warning for warning in found.warnings)


def test_other_examples_need_a_larger_change_of_the_share() -> None:
    old = run(case(None, counts={Verdict.DELEGATED: 50, Verdict.FALLBACK: 50}))
    new = run(case(None, counts={Verdict.DELEGATED: 45, Verdict.FALLBACK: 55}))
    assert report.diff(old, new).of("lost")
    assert not report.diff(old, replace(new, seed=1)).changes


def test_what_a_backend_says_otherwise_is_listed_and_what_it_no_longer_offers_is_a_regression() -> None:
    old = run(description={"option speed": {"default": "1", "help": "How fast."}, "scheme w8": {"kind": "static"}})
    said = replace(old, description={**(old.description or {}), "option speed": {"default": "2", "help": "How fast."}})
    found = report.diff(old, said)
    assert [(change.group, change.case, change.old, change.new, change.detail) for change in found.changes] == [
        ("said", "option speed", "1", "2", "default")
    ]
    assert not found.is_regression
    lost = report.diff(old, replace(old, description={"scheme w8": {"kind": "static"}}))
    assert [change.case for change in lost.of("lost")] == ["option speed"]
    assert lost.is_regression
    assert not report.diff(replace(old, description=None), said).changes, "of an older suite"


def test_a_run_keeps_what_the_backend_says_and_its_document_is_read_strictly() -> None:
    before = run(description={"backend": {"hooks": ("preprocess", "targets"), "summary": "Fast."}})
    document = report.as_json(before)
    assert report.from_json(document).description == before.description
    assert report.from_json({key: value for key, value in document.items() if key != "description"}).description is None
    wrongs: list[Any] = [[], {"backend": "fast"}, {"backend": {"hooks": [1]}}]
    for wrong in wrongs:
        with pytest.raises(FormatError, match="description"):
            report.from_json(document | {"description": wrong})


def test_all_forms_say_the_same() -> None:
    old = run(case(Verdict.DELEGATED), case(Verdict.MISMATCH, "operators/b|c/float32"), seed=1)
    new = run(case(Verdict.CRASH), case(Verdict.DELEGATED, "operators/b|c/float32"))
    found = report.diff(old, new)
    values = json.loads(json.dumps(found.to_json()))
    assert values["regression"] is True
    assert [change["case"] for change in values["changes"]["faults"]] == ["operators/a/float32"]
    assert [change["old"] for change in values["changes"]["fixed"]] == ["wrong result"]
    markdown = found.to_markdown()
    assert "**Regression in 2 cases of both runs (new faults: 1; fixed: 1).**" in markdown
    assert "| `operators/a/float32` | correct, delegated | crash | off by one |" in markdown
    assert "`operators/b\\|c/float32`" in markdown
    text = io.StringIO()
    found.print(Console(file=text, width=120))
    for words in ("warning: the seed differs", "New faults: 1", "Fixed: 1", "off by one", "Regression in 2 cases"):
        assert words in text.getvalue()
