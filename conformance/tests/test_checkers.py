"""Checkers: valid contents of a vendor's file, and the handling of their output."""

from __future__ import annotations

import pytest

from delegatekit_conformance.cases import Broken, NotApplicable
from delegatekit_conformance.cases.contract import checkers
from delegatekit_conformance.cases.contract.checkers import Checker, checkers_of, parse
from delegatekit_conformance.cases.fresh import Fresh
from delegatekit_conformance.cases.specimens import DYNAMIC
from delegatekit_conformance.context import Context
from delegatekit_conformance.errors import InputError

CONTEXT = Context("reference", stock=False)
#: Python itself prints each import.
ENTRY = """
[[checker]]
name = "Python's eye"
environment = {{ PYTHONPROFILEIMPORTTIME = "1" }}
present = '''{present}'''
complaint = '''{complaint}'''
"""


def judged(monkeypatch: pytest.MonkeyPatch, *found: Checker, prints: str | None = None) -> str:
    """The rule's verdict where the vendor names these; for a process that prints something, or for real ones."""
    monkeypatch.setattr(checkers, "checkers_of", lambda backend: found)
    monkeypatch.setattr(checkers, "_GRAPHS", 1)
    monkeypatch.setattr(checkers, "_RECIPES", (DYNAMIC,))
    if prints is not None:
        answer = {"unavailable": "no driver" if prints == "no driver" else ""}
        monkeypatch.setattr(checkers, "in_fresh_process", lambda *_, **__: Fresh(answer, "", prints, (), False))
    return checkers.checkers(CONTEXT)


def checker(present: str = r"\| delegatekit$", complaint: str = "no such module") -> Checker:
    """One that watches, and complains of nothing, unless other words are given."""
    (found,) = parse(ENTRY.format(present=present, complaint=complaint))
    return found


def test_no_checker_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotApplicable, match="names no checker"):
        judged(monkeypatch)


def test_without_a_complaint_it_says_how_many_programs_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    said = judged(monkeypatch, checker())
    assert said.endswith(" programs without a complaint") and int(said.split()[0]) > 15


def test_a_complaint_while_programs_run_is_a_fault_and_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Broken, match=r"Python's eye complains: .*delegatekit_reference\.runtime"):
        judged(monkeypatch, checker(complaint=r"\| +delegatekit_reference\.runtime"))


def test_which_of_them_are_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said = judged(monkeypatch, checker("eye 1"), checker("^eye 2"), prints="here\neye 2")
    assert "programs without a complaint; Python's eye is not installed here: nothing is printed like 'eye 1'" in said


@pytest.mark.parametrize(
    ("prints", "words"), [("", "not installed here"), ("no driver", "under Python's eye nothing runs: no driver")]
)
def test_where_none_watches_nothing_was_judged(monkeypatch: pytest.MonkeyPatch, prints: str, words: str) -> None:
    with pytest.raises(NotApplicable, match=words):
        judged(monkeypatch, checker(), prints=prints)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("checker = 1", "has no valid checkers"),
        ("[[tool]]", "has no valid checkers"),
        (ENTRY.format(present="(", complaint="x"), "has no valid checkers"),
        ('[[checker]]\nname = "one"', "has no valid checkers"),
        (ENTRY.format(present="x", complaint="x").replace('"1"', "1"), "PYTHONPROFILEIMPORTTIME is 1, not a string"),
        ("[[checker", "is not TOML"),
    ],
)
def test_a_file_that_says_no_checkers_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse(text, "acme/checkers.toml")


def test_files_of_plugins() -> None:
    assert [found.name for found in checkers_of("vulkan")] == ["Vulkan's validation layer"]
    assert not checkers_of("reference")
