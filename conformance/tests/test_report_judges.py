"""Coverage of each judge, unreached rows, and results that are right without the backend: in every form of report."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from rich.console import Console

from delegatekit_conformance import report
from delegatekit_conformance.outcome import CaseResult, Verdict
from delegatekit_conformance.report import judges, rows
from delegatekit_conformance.run import BackendFacts, Run

NO_LIBRARY = "the delegate AcmeBackend says: it finds no library"


def case(name: str, counts: dict[Verdict, int], **facts: object) -> CaseResult:
    room = name.partition("/")[0]
    return CaseResult(name, {"room": room, "operator": name.split("/")[1], "dtype": "float32"}, counts, **facts)  # type: ignore[arg-type]


@pytest.fixture
def run() -> Run:
    results = (
        case(
            "operators/aten.add.Tensor/float32",
            {Verdict.DELEGATED: 4, Verdict.FALLBACK: 2},
            unjudged={NO_LIBRARY: 4},
            taken={"aten.add.Tensor": 4},
        ),
        case(
            "operators/aten.mul.Tensor/float32",
            {Verdict.FALLBACK: 3},
            reasons=("aten.mul.Tensor: result is float32", "aten.sub.Tensor: no"),
            refused={"aten.mul.Tensor": 3, "aten.sub.Tensor": 1},
        ),
        case("operators/aten.sin.default/float32", {Verdict.LOWERING_ERROR: 1}),
        case("contract/a-rule", {Verdict.PASSED: 1}),
    )
    backend = BackendFacts(
        "acme",
        "delegatekit-acme",
        "2.1",
        rows={
            "aten.add.Tensor": "",
            "aten.mul.Tensor": "",
            "aten.sin.default": "",
            "aten.cos.default": "",
            "aten.baddbmm.default": "PyTorch's decomposition leaves aten.bmm.default of it",
        },
        verifier="Acme's simulator",
        unverified="the option check is not set",
    )
    return Run(backend, results)


def printed(run: Run) -> str:
    console = Console(file=io.StringIO(), width=400)
    report.print_console(console, run)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_judges_say_what_they_saw_and_why_not_the_others(run: Run) -> None:
    eager, stock, vendor = judges.judges(run)
    assert (eager.seen, eager.examples) == (4, 10)
    assert dict(eager.unseen) == {"nothing was delegated": 5, "lowering failed": 1}
    assert (stock.seen, dict(stock.unseen)) == (
        0,
        {"nothing was delegated": 5, NO_LIBRARY: 4, "lowering failed": 1},
    )
    assert (vendor.name, vendor.seen) == ("Acme's simulator", 0)
    assert dict(vendor.unseen) == {"the option check is not set": 10}
    assert sum(count for _, count in stock.unseen) + stock.seen == stock.examples


def test_a_judge_that_is_there_and_saw_nothing_is_a_warning_everywhere(run: Run) -> None:
    for text in (printed(run), report.markdown(run), report.html([run])):
        assert "it judged nothing" in text
        assert NO_LIBRARY in text
    assert "warning: stock ExecuTorch runtime: it judged nothing" in printed(run)
    properties = {
        item.get("name"): item.get("value") for item in ElementTree.fromstring(report.junit(run)).iter("property")
    }
    assert NO_LIBRARY in (properties["judge.stock ExecuTorch runtime"] or "")
    assert (properties["judge.PyTorch eager"] or "").startswith("4 of 10 examples")
    listed = report.as_json(run)["summary"]["judges"]
    assert [(one["judge"], one["seen"]) for one in listed][:2] == [
        ("PyTorch eager", 4),
        ("stock ExecuTorch runtime", 0),
    ]


def test_what_the_user_switched_off_is_told_without_a_warning(run: Run) -> None:
    first, *others = run.results
    off = replace(run, results=(replace(first, unjudged={"switched off (--no-stock)": 4}), *others))
    stock = judges.judges(off)[1]
    assert ("switched off (--no-stock)", 4) in stock.unseen
    assert not stock.warning


def test_a_judge_that_is_lost_between_two_runs_is_a_warning_of_the_difference(run: Run) -> None:
    first, *others = run.results
    before = replace(run, results=(replace(first, unjudged={}, stock=4), *others))
    found = report.diff(before, run)
    assert any(
        "stock ExecuTorch runtime saw 4 examples of the old run, and none of the new one" in w for w in found.warnings
    )
    assert ("examples seen by stock ExecuTorch runtime", "4 of 10", "0 of 10") in found.circumstances
    assert not any("saw" in warning for warning in report.diff(run, run).warnings)


def test_what_is_right_without_the_backend_is_counted_apart_everywhere(run: Run) -> None:
    parts = judges.parts(run.results)
    assert (parts.right, parts.partly, parts.without, parts.others) == (4, 0, 5, 1)
    assert report.as_json(run)["summary"]["correct"] == {"delegated": 4, "partly": 0, "nothing_delegated": 5}
    for text in (printed(run), report.markdown(run)):
        assert "5 with nothing delegated, which say nothing about the backend" in text
    assert "Nothing delegated" in report.html([run])
    root = ElementTree.fromstring(report.junit(run))
    skipped = [item.get("name") for item in root.iter("testcase") if item.find("skipped") is not None]
    assert skipped == ["aten.mul.Tensor/float32"]
    (line,) = [line for line in report.support_csv(run).splitlines() if line.startswith("aten.add.Tensor")]
    assert line.endswith(",4,0,2,0")


def test_rows_say_what_reached_them(run: Run) -> None:
    found = {row.operator: row for row in rows.reach(run) or ()}
    assert {name: row.state for name, row in found.items()} == {
        "aten.add.Tensor": "compiled",
        "aten.mul.Tensor": "refused",
        "aten.sin.default": "failed",
        "aten.cos.default": "no example",
        "aten.baddbmm.default": "cannot occur",
    }
    assert found["aten.mul.Tensor"].reasons == ("… is float32",)  # without the name of a node
    assert (found["aten.add.Tensor"].compiled, found["aten.mul.Tensor"].refused) == (4, 3)
    for text in (printed(run), report.html([run]).replace("<wbr>", "")):
        assert "aten.cos.default" in text
        assert "PyTorch" in text and "decomposition leaves aten.bmm.default of it" in text
    assert "5 rows of the support table: 1 compiled, 1 cannot occur, 1 failed in every example" in printed(run)


def test_rows_without_an_example_are_not_listed_for_a_choice_of_cases(run: Run) -> None:
    chosen = replace(run, selection="operators/*")
    assert "aten.cos.default" not in [row.operator for row in rows.unreached(chosen)]
    assert "1 without an example" in rows.summary(chosen)


def test_a_backend_that_does_not_tell_its_rows_is_told_so(run: Run) -> None:
    silent = replace(run, backend=replace(run.backend, rows=None))
    assert rows.reach(silent) is None
    for text in (printed(silent), report.markdown(silent), report.html([silent])):
        assert "its rows cannot be read" in text
    assert report.as_json(silent)["summary"]["rows"] is None


def test_runs_of_rules_alone_have_no_judges(run: Run) -> None:
    rules = replace(run, results=run.results[-1:])
    assert judges.judges(rules) == ()
    assert "PyTorch eager" not in printed(rules)


def test_the_facts_survive_json(run: Run) -> None:
    again = report.from_json(json.loads(json.dumps(report.as_json(run))))
    assert judges.judges(again) == judges.judges(run)
    assert rows.reach(again) == rows.reach(run)
