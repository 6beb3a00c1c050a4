"""Drafts of expectations: one entry for each kind of fault, which is refused until it has a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from delegatekit_conformance.drafting import drafted, write_draft
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.expectations import parse
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.run import BackendFacts, Run

WORDS = 'output 0: relative error 0.5 is above 1e-06 \x1b[31m"quoted"'


def faulty(case: str, detail: str = WORDS, declared: str = "") -> CaseResult:
    fault = Outcome(Verdict.MISMATCH, detail, blame="backend", declared=declared)
    tags = {"room": "operators", "operator": case.split("/")[1]}
    return CaseResult(case, tags, {Verdict.MISMATCH: 1}, (fault,))


def run_of(*results: CaseResult) -> Run:
    return Run(BackendFacts("acme", "delegatekit-acme", "1.0"), results)


def test_cases_of_one_operator_with_the_same_words_are_one_entry() -> None:
    text = drafted(run_of(faulty("operators/aten.exp.default/float32"), faulty("operators/aten.exp.default/float16")))
    assert text.count("[[expected]]") == 1
    assert "\x1b" not in text


def test_a_draft_is_refused_until_it_has_reasons_and_then_excuses_what_it_was_made_of() -> None:
    result = faulty("operators/aten.exp.default/float32")
    text = drafted(run_of(result))
    with pytest.raises(InputError, match="it does not say yet why"):
        parse(text)
    known = parse(re.sub(r"TODO: say why\. ", "exp is a table. ", text))
    assert known.mark(result).expected is not None
    assert known.mark(faulty(result.case, "output 0: relative error 0.7 is above 2e-06")).expected is None
    other = WORDS.replace("0.5", "0.75")
    assert known.mark(faulty(result.case, other)).expected is not None, "numbers may be others"


def test_what_a_support_table_declares_is_expected_and_not_drafted() -> None:
    result = faulty("operators/aten.exp.default/float32", declared="exp(NaN) is 0")
    assert parse("").mark(result).expected == "declared by the support table: exp(NaN) is 0"
    assert drafted(run_of(result)) == ""


def test_a_draft_overwrites_nothing(tmp_path: Path) -> None:
    path = tmp_path / "conformance.toml"
    assert write_draft(path, run_of()) == 0 and not path.exists()
    assert write_draft(path, run_of(faulty("operators/aten.exp.default/float32"))) == 1
    before = path.read_text()
    with pytest.raises(InputError, match="does not overwrite"):
        write_draft(path, run_of(faulty("operators/aten.log.default/float32")))
    assert path.read_text() == before
