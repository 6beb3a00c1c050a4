"""Options of one program: valid entries of a vendor's file, and faults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from delegatekit.plugins.backend import LoadedBackend
from delegatekit_api import LoweringError, OptionError
from delegatekit_conformance.cases import option_programs
from delegatekit_conformance.cases.option_programs import Choice, ProgramCase, choices_of, parse
from delegatekit_conformance.context import Context
from delegatekit_conformance.errors import InputError
from delegatekit_conformance.outcome import Outcome, Verdict

CONTEXT = Context("reference", stock=False)


def run(monkeypatch: pytest.MonkeyPatch | None = None, raises: Exception | None = None, **values: Any) -> Outcome:
    """The outcome of one entry; where lowering `raises` something."""

    def lower(*_: Any) -> Any:
        assert raises is not None
        raise raises

    if monkeypatch is not None:
        monkeypatch.setattr(option_programs, "lower", lower)
    choice = Choice(**{"name": "one", "program": "dynamic", "options": {}, **values})
    return ProgramCase(choice).run(choice, CONTEXT)


def test_calls_that_are_right_and_one_that_is_refused() -> None:
    outcome = run(calls=((9,), (2,)), refused=((10,),))
    assert outcome.verdict is Verdict.DELEGATED


def test_a_call_that_should_be_refused_is_a_fault() -> None:
    outcome = run(calls=((9,),), refused=((10,), (7,)))
    assert outcome.verdict is Verdict.VIOLATION and "sizes (7,)" in outcome.detail


def test_words_of_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, OptionError("needs two"), error="two").verdict is Verdict.PASSED
    outcome = run(monkeypatch, OptionError("needs three"), error="two")
    assert outcome.verdict is Verdict.VIOLATION and "other words than 'two'" in outcome.detail
    outcome = run(monkeypatch, ValueError("two"), error="two")
    assert outcome.verdict is Verdict.VIOLATION and "another error than OptionError" in outcome.detail


def test_options_name_files_that_are_there_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def lower(recipe: Any, context: Context) -> Any:
        path = Path(context.options["settings"])
        read.append(path)
        raise OptionError(f"{path} says {path.read_text()}")

    monkeypatch.setattr(option_programs, "lower", lower)
    files = {"own.ini": "fast"}
    choice = Choice("one", "dynamic", {"settings": "own.ini", "words": ["own.ini"]}, error="says fast", files=files)
    outcome = ProgramCase(choice).run(choice, CONTEXT)
    assert (outcome.verdict, outcome.detail) == (Verdict.PASSED, f".{os.sep}own.ini says fast")
    assert not read[0].exists()


def test_files_that_lowering_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def try_recipe(recipe: Any, context: Context) -> Outcome:
        folder = Path(context.options["traces"])
        folder.mkdir()
        (folder / "of.bin").write_text("" if folders else "traced")
        folders.append(folder)
        return Outcome(Verdict.DELEGATED, delegates=1)

    monkeypatch.setattr(option_programs, "try_recipe", try_recipe)
    values = {"options": {"traces": "a/b"}, "written": ("a/b/of.bin",), "files": {"a/x": ""}, "calls": ((9,),)}
    for name in ("_with_refusals", "_with_other_files"):
        monkeypatch.setattr(option_programs, name, lambda outcome, *_: outcome)
    assert run(**values).verdict is Verdict.DELEGATED
    outcome = run(**values)
    assert (outcome.verdict, outcome.detail) == (Verdict.VIOLATION, "lowering does not write a/b/of.bin")
    assert not folders[0].exists()


def test_an_environment_is_that_of_the_example_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_MODE", "fast")
    monkeypatch.delenv("ACME_SDK", raising=False)

    def lower(*_: Any) -> Any:
        raise LoweringError(f"{os.environ['ACME_MODE']} {Path(os.environ['ACME_SDK'], 'lib').read_text()}")

    monkeypatch.setattr(option_programs, "lower", lower)
    environment = {"ACME_MODE": "slow", "ACME_SDK": "sdk"}
    outcome = run(environment=environment, files={"sdk/lib": "none"}, failure="slow none")
    assert outcome.verdict is Verdict.PASSED
    assert outcome.example == "dynamic with ACME_MODE=slow, ACME_SDK=sdk"
    assert os.environ["ACME_MODE"] == "fast" and "ACME_SDK" not in os.environ
    outcome = run(environment=environment, files={"sdk/lib": "none"}, failure="none", unavailable="none")
    assert outcome.verdict is Verdict.VIOLATION and "says that it is available" in outcome.detail


def test_words_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, LoweringError("needs two"), failure="two").verdict is Verdict.PASSED
    outcome = run(monkeypatch, OptionError("two"), failure="two")
    assert outcome.verdict is Verdict.VIOLATION and "another error than LoweringError" in outcome.detail


def test_a_version_that_says_nothing_of_a_file_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context("ethosu", stock=False)
    choice = next(choice for choice in choices_of("ethosu") if choice.files and choice.calls)
    assert ProgramCase(choice).run(choice, context).verdict is Verdict.DELEGATED
    monkeypatch.setattr(LoadedBackend, "compiler_version", lambda *_: "5.1")
    outcome = ProgramCase(choice).run(choice, context)
    assert outcome.verdict is Verdict.VIOLATION and "'5.1' whatever own.ini says" in outcome.detail


def test_what_is_lowered_and_should_be_refused_is_a_fault() -> None:
    outcome = run(error="at least two")
    assert outcome.verdict is Verdict.VIOLATION and "should be refused" in outcome.detail


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has no valid options of programs"),
        ("[[program]]\nname = 'a'\n", "has no valid options of programs"),
        ("[[program]]\nname = 'a'\nprogram = 'none'\noptions = {}\ncalls = [[1]]", "there is no program 'none'"),
        ("[[program]]\nname = 'a'\nprogram = 'dynamic'\noptions = {}\ncalls = [[1, 2]]", "1 sizes that change"),
        ("[[program]]\nname = 'a'\nprogram = 'dynamic'\noptions = {}", "either calls"),
        ("[[program]]\nname = 'a'\nprogram = 'dynamic'\noptions = {}\ncalls = [[2]]\nerror = 'b'", "either calls"),
        ("[[program]]\nname = 'a'\nprogram = 'dynamic'\noptions = {}\nerror = 'c'\nfailure = 'b'", "either calls"),
        ("[[program]]\nname = 'a'\nprogram = 'dynamic'\noptions = {}\nerror = 'c'\nunavailable = 'b'", "of a failure"),
    ],
)
def test_a_file_that_says_something_else_is_one_clear_error(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse(text)
