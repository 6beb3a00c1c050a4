"""Reports of a run that has every verdict, and of a real one: JSON, merging, JUnit, Markdown, CSV, console."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from delegatekit_api import DelegateKitError, FormatError
from delegatekit_conformance import report
from delegatekit_conformance.cases import all_cases
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import CaseResult, Outcome, Tally, Verdict
from delegatekit_conformance.report import views
from delegatekit_conformance.run import BackendFacts, Run

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")

#: Output of compilers: colors, a NUL, half of a surrogate pair, markup of every format.
NASTY = "\x1b[31merror\x1b[0m \x00\ud800 [bold]x[/] <b>|`y`|</b> ]]> & \uffff\nline two"


def operator(name: str, dtype: str, counts: Mapping[Verdict, int], **fields: Any) -> CaseResult:
    tags = {"room": "operators", "operator": name, "dtype": dtype}
    return CaseResult(f"operators/{name}/{dtype}", tags, dict(counts), **fields)


def fault(verdict: Verdict, detail: str = NASTY) -> Outcome:
    return Outcome(
        verdict,
        detail,
        "aten.add.Tensor(float32[2])",
        "backend",
        1,
        2,
        3,
        error=0.5,
        tolerance=1e-6,
        snippet="import torch\n",
    )


@pytest.fixture
def run() -> Run:
    """Each verdict once as an operator case, and other parts of a run."""
    results = [
        operator(
            f"aten.op{number}.default", "float32", {verdict: 3}, faults=(fault(verdict),) if verdict.is_fault else ()
        )
        for number, verdict in enumerate(Verdict)
    ]
    core = Outcome(Verdict.RUN_ERROR, "kernel refused", blame="core", core="run error: kernel refused")
    results += [
        operator(
            "aten.op0.default",
            "int8",
            {Verdict.DELEGATED: 2, Verdict.FALLBACK: 1},
            reasons=("aten.op0.default: inputs_1 is int8: only float32 is taken", "aten.mul.Tensor: has 5 dimensions"),
            delegated_nodes=4,
            stock=2,
            hosted=1,
            fallback_calls=1,
            closeness=0.25,
            latencies=((1e-4, 2e-4), (3e-4, 2e-4)),
        ),
        operator("aten.op1.default", "int8", {}, core_faults=(core,)),
        operator(
            "aten.op2.default", "int8", {Verdict.CRASH: 1}, faults=(fault(Verdict.CRASH),), expected="known; see #1"
        ),
        operator("aten.op3.default", "int8", {Verdict.FALLBACK: 1}, expected="was wrong; see #2"),
        CaseResult("contract/says its version", {"room": "contract"}, {Verdict.PASSED: 1}, detail=NASTY),
    ]
    facts = BackendFacts(
        "acme", "delegatekit-acme", "2.1", "AcmeBackend", "an NPU", "1.1", "float16", True, False, "no chip"
    )
    return Run(
        facts,
        tuple(results),
        seed=7,
        options={"level": "2"},
        started="2026-11-21T12:00:00Z",
        seconds=75.0,
        versions={"delegatekit-conformance": "0.1.0", "torch": "2.13.0"},
        machine={"processor": "x"},
        device={"name": "NPU 7"},
        unused_expectations=("operators/nothing*",),
    )


@pytest.fixture(scope="module")
def real() -> Run:
    """Two operators on the reference backend, quickly."""
    context = Context("reference", PROFILES["quick"])
    results = []
    for name in ("operators/aten.add.Tensor/float32", "operators/aten.add.Tensor/int32"):
        case = all_cases(context)[name]
        tally = Tally(name, case.tags)
        for example in case.examples(context):
            tally.add(case.run(example, context))
        results.append(tally.result())
    return Run.of(context, results, seconds=1.5)


def errors(document: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(report.schema())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


# JSON


def test_the_schema_is_one_of_draft_2020_12_and_knows_every_verdict() -> None:
    schema = report.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert [each["const"] for each in schema["$defs"]["verdict"]["oneOf"]] == [verdict.value for verdict in Verdict]
    assert schema["properties"]["format"]["const"] == report.FORMAT


def test_documents_of_runs_keep_the_schema(run: Run, real: Run) -> None:
    assert errors(json.loads(json.dumps(report.as_json(run)))) == []
    assert errors(json.loads(json.dumps(report.as_json(real)))) == []
    assert errors(json.loads(json.dumps(report.as_json(replace(run, shard=(1, 4), results=()))))) == []


@pytest.mark.parametrize(
    "path, value",
    [
        ("format", 1),
        ("seed", "zero"),
        ("shard", [1]),
        ("shard", [0, 2]),
        ("cases.0.verdict", "fine"),
        ("cases.0.counts", {"fine": 3}),
        ("cases.0.counts", {"passed": 0}),
        ("cases.0.seconds", -1),
        ("cases.0.tags", {"operator": "aten.add.Tensor"}),
        ("cases.0.surprise", 1),
        ("cases.9.faults.0.blame", "the user"),
        ("cases.0.latencies", [[0.1]]),
        ("backend.available", "yes"),
        ("versions.torch", 2.13),
        ("surprise", None),
    ],
)
def test_a_broken_document_breaks_the_schema(run: Run, path: str, value: Any) -> None:
    document = json.loads(json.dumps(report.as_json(run)))
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = document
    for part in way:
        place = place[part]
    place[last] = value
    assert errors(document)


@pytest.mark.parametrize("missing", ["format", "backend", "cases", "seed", "versions"])
def test_a_document_without_a_part_breaks_the_schema_and_is_not_read(run: Run, missing: str) -> None:
    document = report.as_json(run)
    del document[missing]
    assert errors(document)
    if missing in ("seed", "versions"):
        return  # these have defaults: older documents without them could be read
    with pytest.raises(FormatError):
        report.from_json(document)


def test_what_was_written_is_read_back(run: Run, real: Run, tmp_path: Path) -> None:
    for each in (run, real, replace(run, shard=(2, 3))):
        report.write_json(tmp_path / "run.json", each)
        assert report.read_json(tmp_path / "run.json") == each


@pytest.mark.parametrize("error", [float("inf"), float("-inf")])
def test_an_error_without_bound_is_a_text_in_json_and_read_back(run: Run, error: float, tmp_path: Path) -> None:
    fault = Outcome(Verdict.MISMATCH, error=error, tolerance=0.1)
    endless = replace(run, results=(replace(run.results[0], faults=(fault,)),))
    report.write_json(tmp_path / "run.json", endless)
    document = json.loads((tmp_path / "run.json").read_text(), parse_constant=pytest.fail)
    assert float(document["cases"][0]["faults"][0]["error"]) == error
    jsonschema.validate(document, report.schema())
    assert report.read_json(tmp_path / "run.json") == endless


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 2}', '{"format": 2, "cases": [{}]}', "\xff"]
)
def test_a_file_that_is_no_report_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text, "latin-1")
    with pytest.raises(FormatError, match=r"other\.json"):
        report.read_json(path)


# Merging


def shards(run: Run, count: int) -> list[Run]:
    return [
        replace(run, shard=(number + 1, count), results=run.results[number::count], machine={"processor": f"x{number}"})
        for number in range(count)
    ]


def test_shards_make_the_whole_again(run: Run) -> None:
    whole = report.merge(shards(run, 3)[::-1])
    assert sorted(whole.results, key=lambda result: result.case) == sorted(run.results, key=lambda result: result.case)
    assert (whole.shard, whole.seconds) == (None, 3 * run.seconds)
    assert whole.machine["processor"] == "x2; x1; x0"
    assert whole.unused_expectations == run.unused_expectations


def test_what_does_not_belong_together_is_not_merged(run: Run) -> None:
    parts = shards(run, 3)
    with pytest.raises(DelegateKitError, match="missing: 2"):
        report.merge([parts[0], parts[2]])
    with pytest.raises(DelegateKitError, match="seed differs: 7 and 8"):
        report.merge([parts[0], replace(parts[1], seed=8), parts[2]])
    with pytest.raises(DelegateKitError, match="is in two of the runs"):
        report.merge([*parts, parts[0]])
    with pytest.raises(DelegateKitError, match="different divisions"):
        report.merge([*parts, replace(run, results=())])
    with pytest.raises(DelegateKitError, match="no run"):
        report.merge([])


def test_runs_of_different_cases_are_merged(run: Run) -> None:
    first = replace(run, results=run.results[:5], selection="a*", unused_expectations=("x", "y"))
    second = replace(run, results=run.results[5:], selection="b*", unused_expectations=("y",))
    whole = report.merge([first, second])
    assert (len(whole.results), whole.selection, whole.unused_expectations) == (len(run.results), "a* b*", ("y",))


# JUnit


def test_junit_has_a_test_case_for_each_case(run: Run) -> None:
    root = ElementTree.fromstring(report.junit(run).encode())
    cases = root.findall("testsuite/testcase")
    assert len(cases) == len(run.results)
    skipped = {case.get("name"): case.find("skipped") for case in cases}
    failed = [case for case in cases if case.find("failure") is not None]
    assert len(failed) == len(run.faults) == sum(verdict.is_fault for verdict in Verdict)
    for element in (root, *root.findall("testsuite")):
        inside = list(element.iter("testcase"))
        assert int(element.get("tests", "")) == len(inside)
        assert int(element.get("failures", "")) == sum(case.find("failure") is not None for case in inside)
        assert int(element.get("skipped", "")) == sum(case.find("skipped") is not None for case in inside)
    refused = [f"aten.op{list(Verdict).index(v)}.default/float32" for v in (Verdict.REFUSED, Verdict.NOT_APPLICABLE)]
    assert all(skipped[name] is not None for name in refused)
    excused = skipped["aten.op2.default/int8"]
    assert excused is not None
    assert excused.get("message") == "expected crash: known; see #1"
    assert skipped["aten.op0.default/float32"] is None
    message = failed[0].find("failure")
    assert message is not None
    assert message.get("message") == f"{message.get('type')}: error  [bold]x[/] <b>|`y`|</b> ]]> &"
    assert "import torch" in (message.text or "")


def test_junit_keeps_to_the_elements_that_ci_systems_know(run: Run, tmp_path: Path) -> None:
    report.write_junit(tmp_path / "junit.xml", run)
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    # The schema of Jenkins' xunit plugin and of Maven Surefire: names, order and required attributes.
    for suite in root:
        assert {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"} <= set(suite.keys())
        assert [child.tag for child in suite] == ["properties", *["testcase"] * (len(suite) - 1)]
        for case in suite.iter("testcase"):
            assert {"name", "classname", "time"} <= set(case.keys())
            assert float(case.get("time", "")) >= 0
            assert [child.tag for child in case] in (
                ["system-out"],
                ["skipped", "system-out"],
                ["failure", "system-out"],
            )


# Markdown, CSV, console


def test_markdown_says_what_matters_and_stays_a_comment(run: Run) -> None:
    text = report.markdown(run)
    assert "**9 cases with faults** in 23 cases" in text
    assert "known; see \\#1" in text
    assert "was wrong; see \\#2" in text
    assert "`operators/nothing*`" in text
    assert "… is int8: only float32 is taken" in text
    assert "<b>" not in text
    assert "\x1b" not in text
    many = replace(run, results=run.results * 200)
    assert len(report.markdown(many)) < 65_536
    rows = [line for line in text.splitlines() if line.startswith("| operators")]
    assert len(rows) == 1
    assert rows[0].count("|") == 8  # one column more for the stock runtime


def test_markdown_without_faults_says_so(real: Run) -> None:
    text = report.markdown(real)
    assert "**No faults** in 2 cases" in text
    assert "### Faults" not in text


def test_snippets_with_fences_do_not_end_the_block(run: Run) -> None:
    broken = replace(run.results[-3], faults=(replace(fault(Verdict.CRASH), snippet="```\n````\n"),), expected=None)
    assert "\n`````python\n```\n````\n`````\n" in report.markdown(replace(run, results=(broken,)))


def test_the_support_table_has_a_row_for_each_operator(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(report.support_csv(run))))
    counted = ["delegated", "partly", "nothing_delegated", "in_stock"]
    assert list(rows[0]) == ["operator", "float32", "int8", "delegated_share", "constraints", *counted]
    table = {row["operator"]: row for row in rows}
    assert len(table) == len(Verdict)
    first = table["aten.op0.default"]
    assert (first["float32"], first["int8"], first["delegated_share"]) == ("delegated", "delegated 67 %", "0.833")
    assert first["constraints"] == "aten.mul.Tensor: has 5 dimensions; … is int8: only float32 is taken"
    assert table["aten.op2.default"]["int8"] == "known fault: crash"
    assert table["aten.op16.default"]["int8"] == ""
    wrong = f"aten.op{list(Verdict).index(Verdict.MISMATCH)}.default"
    assert (table[wrong]["float32"], table[wrong]["delegated_share"]) == ("fault: wrong result", "0.000")


def printed(run: Run, width: int = 120) -> str:
    text = io.StringIO()
    report.print_console(Console(file=text, width=width), run)
    return text.getvalue()


def test_the_console_shows_rooms_faults_and_lists(run: Run) -> None:
    text = printed(run)
    assert "9 cases with faults in 23 cases, 1 min 15 s" in text
    for words in (
        "expected faults (1)",
        "unexpected passes",
        "faults of core",
        "reasons of refusals",
        "operators/nothing*",
    ):
        assert words in text
    assert "[bold]x[/]" in text  # a message's brackets are not markup
    assert "\x1b" not in text
    assert text.count("import torch") == 5


def test_a_snippet_on_the_console_can_be_copied(run: Run) -> None:
    script = "import torch\nx = torch.tensor([" + "0.5, " * 60 + "])\n"
    wrong = replace(run.results[-3], faults=(replace(fault(Verdict.CRASH), snippet=script),), expected=None)
    assert f"\n{script}" in printed(replace(run, results=(wrong,)), 60)


def test_the_console_stays_short(run: Run) -> None:
    many = [replace(result, case=f"{result.case}/{number}") for number in range(80) for result in run.results]
    assert len(printed(replace(run, results=tuple(many)), 100).splitlines()) < 250


def test_the_console_of_a_real_run_has_no_fault(real: Run) -> None:
    assert "no faults in 2 cases" in printed(real)


def test_an_empty_run_can_be_reported(run: Run) -> None:
    empty = replace(run, results=(), unused_expectations=())
    assert "no faults in 0 cases" in printed(empty)
    assert "No case was run" in report.html([empty])
    assert "0 cases" in report.markdown(empty)
    assert report.support_csv(empty).startswith("operator,delegated_share,constraints,delegated,")
    assert ElementTree.fromstring(report.junit(empty).encode()).get("tests") == "0"


# Views


def test_a_share_is_all_or_nothing_only_where_it_is() -> None:
    assert [views.percent(value) for value in (0.0, 0.001, 0.5, 0.999, 1.0, None)] == [
        "0 %",
        "1 %",
        "50 %",
        "99 %",
        "100 %",
        "",
    ]


def test_the_share_counts_only_examples_that_were_tried(run: Run) -> None:
    mixed = operator(
        "aten.a.b", "int8", {Verdict.DELEGATED: 1, Verdict.MISMATCH: 1, Verdict.REFUSED: 2, Verdict.NOT_EXPORTABLE: 9}
    )
    assert views.share([mixed]) == 0.25
    assert views.share([operator("aten.a.b", "int8", {Verdict.NOT_APPLICABLE: 1})]) is None


@pytest.mark.parametrize("verdict", [Verdict.PASSED, Verdict.VIOLATION, Verdict.UNDETECTED, Verdict.CRASH])
def test_rules_and_damages_are_nothing_that_a_backend_takes(verdict: Verdict) -> None:
    rules = [CaseResult(f"{room}/one", {"room": room}, {verdict: 2}) for room in ("contract", "robustness")]
    assert views.share(rules) is None
    assert views.share([*rules, operator("aten.a.b", "int8", {Verdict.DELEGATED: 1})]) == 1.0
    assert views.share([CaseResult("acme/sram", {"room": "acme"}, {Verdict.PASSED: 1})]) is None


def test_reasons_that_differ_in_names_of_tensors_are_one() -> None:
    lines = (
        "aten.a.b: inputs_1 is int8: no",
        "aten.a.b: inputs_0 is int8: no",
        "aten.c.d: _folded is int8: no",
        "said plainly",
    )
    found = views.reasons(
        [operator("aten.a.b", "int8", {}, reasons=lines), operator("aten.c.d", "int8", {}, reasons=lines[2:3])]
    )
    assert found == [views.Reason("… is int8: no", ("aten.a.b", "aten.c.d"), 2), views.Reason("said plainly", (), 1)]


def test_reasons_that_differ_in_the_refused_dtype_are_one() -> None:
    cases = [
        operator("aten.a.b", dtype, {}, reasons=(f"aten.a.b: inputs_1 is {dtype}: only float32 is taken",))
        for dtype in ("int8", "bool", "float16")
    ]
    assert views.reasons(cases) == [views.Reason("… is float16, int8 or bool: only float32 is taken", ("aten.a.b",), 3)]


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "0 µs"),
        (5e-7, "0.5 µs"),
        (2.5e-4, "250 µs"),
        (0.0032, "3.2 ms"),
        (59.9, "59.9 s"),
        (72, "1 min 12 s"),
        (3700, "1 h 01 min"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert views.duration(seconds) == words
