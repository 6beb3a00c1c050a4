"""The vendor's file of known faults: excused and other faults, and refused mistakes in the file."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from delegatekit.plugins import discovery
from delegatekit_api import BackendOptions, DelegateKitError
from delegatekit_conformance.expectations import load, parse
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict

FILE = """
[[expected]]
case = "operators/aten.pow.*/float16"
verdict = "wrong result"
detail = "relative error 0\\\\.\\\\d"
reason = "half precision"
issue = "https://example.org/1"

[[expected]]
case = "operators/aten.pow.Scalar/*"
verdict = ["crash", "timeout"]
reason = "the driver dies"
"""


def result(case: str, *faults: Outcome, verdict: Verdict = Verdict.DELEGATED) -> CaseResult:
    counts = {fault.verdict: 1 for fault in faults} or {verdict: 1}
    return CaseResult(case, {"room": "operators"}, counts, faults)


def wrong(detail: str = "relative error 0.5") -> Outcome:
    return Outcome(Verdict.MISMATCH, detail, blame="backend")


CRASH = Outcome(Verdict.CRASH, "signal SIGSEGV", blame="backend")


def test_an_entry_excuses_the_faults_that_it_fits() -> None:
    known = parse(FILE)
    marked = known.mark(result("operators/aten.pow.Scalar/float16", wrong()))
    assert marked.expected == "half precision (https://example.org/1)"
    assert marked.verdict.is_fault and not marked.is_fault
    both = known.mark(result("operators/aten.pow.Scalar/float16", wrong(), CRASH))
    assert both.expected == "half precision (https://example.org/1); the driver dies"


@dataclass(frozen=True)
class Options(BackendOptions):
    fp16: bool = False


def test_an_entry_may_be_for_some_options_only() -> None:
    known = parse('[[expected]]\ncase = "operators/*"\nreason = "rounded"\noptions = { fp16 = true }\n')
    assert known.under(Options(fp16=True)).mark(result("operators/x", wrong())).expected == "rounded"
    assert known.under(Options()).mark(result("operators/x", wrong())).expected is None


def test_an_entry_for_an_option_that_there_is_not_is_refused() -> None:
    known = parse('[[expected]]\ncase = "operators/*"\nreason = "rounded"\noptions = { f16 = true }\n')
    with pytest.raises(DelegateKitError, match=r"entry 1 \(line 1\): the backend has no option 'f16'"):
        known.under(Options())


def test_a_fault_that_no_entry_fits_is_new() -> None:
    known = parse(FILE)
    for name, faults in {
        "operators/aten.pow.Scalar/float32": [wrong()],  # another dtype
        "operators/aten.pow.Tensor/float16": [CRASH],  # another verdict
        "operators/aten.pow.Other/float16": [wrong("shape differs")],  # another detail
        "operators/aten.pow.Scalar/float16": [wrong(), Outcome(Verdict.LOAD_ERROR, "x", blame="backend")],  # one more
        "operators/aten.mul/float16": [wrong()],  # another case
    }.items():
        assert known.mark(result(name, *faults)).is_fault, name


def test_an_unexpected_pass_is_marked_but_not_where_nothing_was_tried() -> None:
    known = parse(FILE)
    name = "operators/aten.pow.Tensor/float16"
    assert known.mark(result(name)).expected == "half precision (https://example.org/1)"
    for verdict in (Verdict.UNAVAILABLE, Verdict.NOT_APPLICABLE, Verdict.NOT_EXPORTABLE):
        assert known.mark(result(name, verdict=verdict)).expected is None
    assert known.mark(result("models/vit")).expected is None


def test_entries_about_no_case_are_listed() -> None:
    assert parse(FILE).unused(["operators/aten.pow.Scalar/int8"]) == ("operators/aten.pow.*/float16",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[expected]\n", "is not TOML: .*line 1"),
        (
            "[[expected]]\ncase = 'a'\nreason = 'r'\n\n[[expected]]\ncase = 'b'\n",
            r"entry 2 \(line 5\): reason is missing",
        ),
        ("[[expected]]\nreason = 'r'\n", "entry 1 .*case is missing"),
        ("[[expected]]\ncase = 'a'\nreason = ' '\n", "reason is missing"),
        ("[[expected]]\ncase = 'a'\nreason = 'r'\nverdct = 'crash'\n", "'verdct' is unknown; there are case, verdict"),
        ("[[expected]]\ncase = 'a'\nreason = 'r'\nverdict = 'passed'\n", "'passed' is not a fault; faults are"),
        ("[[expected]]\ncase = 'a'\nreason = 'r'\nverdict = 3\n", "verdict is 3, not a string or a list"),
        ("[[expected]]\ncase = 'a'\nreason = 'r'\ndetail = '('\n", "detail is not a regular expression"),
        ("[[expected]]\ncase = 3\nreason = 'r'\n", "case is 3, not a string"),
        ("[expected]\ncase = 'a'\n", "must be a list of entries"),
        ("[[faults]]\ncase = 'a'\n", "has 'faults'"),
        ("strict = 'yes'\n", "not true or false"),
    ],
)
def test_mistakes_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(DelegateKitError, match=message):
        parse(text)


def test_the_file_of_the_vendor_is_found_and_another_takes_its_place(
    install_plugin: Callable[..., Path], tmp_path: Path
) -> None:
    folder = install_plugin("acme")
    assert load("acme").entries == (), "a plugin that is one module has no file"
    package = folder / "acme_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "plugin.py").write_text("raise ImportError('only the file is wanted')")
    (package / "conformance.toml").write_text(FILE)
    (folder / "delegatekit_acme-1.2.dist-info" / "entry_points.txt").write_text(
        "[delegatekit.backends]\nacme = acme_package.plugin\n"
    )
    importlib.invalidate_caches()
    discovery.refresh()
    assert len(load("acme").entries) == 2
    other = tmp_path / "mine.toml"
    other.write_text("strict = true\n")
    assert load("acme", other).strict and not load("acme", other).entries
    other.write_text("[[expected]]\n")
    with pytest.raises(DelegateKitError, match=r"mine.toml: entry 1 \(line 1\)"):
        load("acme", other)
    with pytest.raises(DelegateKitError, match=r"missing\.toml: does not exist"):
        load("acme", tmp_path / "missing.toml")


def test_an_entry_may_name_several_cases_and_show_only_sometimes() -> None:
    text = '[[expected]]\ncase = ["a/*", "b/1"]\nreason = "so it is"\n'
    for name in ("a/7", "b/1"):
        assert parse(text).mark(result(name, CRASH)).expected == "so it is"
        assert parse(text).mark(result(name)).expected == "so it is"  # an unexpected pass
        rare = parse(text + "sometimes = true\n")
        assert rare.mark(result(name, CRASH)).expected == "so it is"
        assert rare.mark(result(name)).expected is None
    assert parse(text).mark(result("b/2", CRASH)).expected is None
    assert parse(text).unused(["a/7", "c"]) == ("b/1",)
