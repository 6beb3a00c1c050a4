"""A run as a Python call: settings are checked, results come marked, and an interrupt keeps finished results."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import delegatekit_conformance
from delegatekit_api import OptionError, PluginError
from delegatekit_conformance import CaseResult, InputError, Interrupted, Listener, Run, Session, Settings, Verdict
from delegatekit_conformance.outcome import Outcome
from delegatekit_conformance.progress import Bar

InstallSeeded = Callable[..., None]


@pytest.fixture
def session(toy_folder: Path, install_seeded: InstallSeeded) -> Callable[..., Session]:
    """Makes sessions whose cases are toys."""
    install_seeded()
    from toy_cases import cases  # type: ignore[import-not-found]

    def make(*select: str, listener: Listener | None = None, **settings: Any) -> Session:
        return Session(Settings("seeded", select=select, jobs=1, **settings), listener=listener, source=cases)

    return make


class Record(Listener):
    """Records its events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def begin(self, total: int, results: Mapping[str, CaseResult]) -> None:
        self.events.append(f"begin {total}")

    def result(self, result: CaseResult) -> None:
        self.events.append(result.case)

    def note(self, text: str) -> None:
        self.events.append(text)

    def end(self) -> None:
        self.events.append("end")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"profile": "slow"}, "no profile 'slow'; there are quick, default, thorough"),
        ({"jobs": 0}, "jobs is 0; it must be at least 1"),
        ({"timeout": 0.5}, "timeout is 0.5; it must be at least 1"),
        ({"timeout": float("nan")}, "timeout is nan; it must be at least 1"),
        ({"memory": -1}, "memory is -1; it must be at least 0"),
        ({"maxfail": -1}, "maxfail is -1; it must be at least 0"),
        ({"shard": (3, 2)}, "shard is \\(3, 2\\); it must be \\(I, N\\)"),
        ({"select": "contract"}, "select is 'contract'; give a tuple of patterns"),
    ],
)
def test_a_wrong_setting_is_an_option_error_that_says_what_is_right(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Settings("seeded", **wrong)


def test_what_is_not_installed_is_told_before_anything_runs(session: Callable[..., Session], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no backend 'nobody' is installed \(installed: .*seeded"):
        Session(Settings("nobody"))
    with pytest.raises(OptionError, match="speed"):
        session(options={"speed": 3})
    with pytest.raises(InputError, match="no case matches 'tools'; there are toys, pair, many, steady, held"):
        _ = session("tools").names
    with pytest.raises(InputError, match="does not exist"):
        session(expectations=tmp_path / "missing.toml")


def test_a_backend_that_cannot_be_used_is_told_before_anything_runs(install_seeded: InstallSeeded) -> None:
    install_seeded(description="*no_such_name")
    with pytest.raises(PluginError, match="no_such_name"):
        Session(Settings("seeded"))


def test_results_come_in_the_order_of_the_suite_and_the_listener_is_told(session: Callable[..., Session]) -> None:
    record = Record()
    chosen = session("toys/mismatch", "toys/sound", "many/0[01]", listener=record)
    run = chosen.run()
    names = ["toys/sound", "toys/mismatch", "many/00", "many/01"]
    assert isinstance(run, Run)
    assert [result.case for result in run.results] == list(chosen.names) == names
    assert [result.case for result in run.faults] == ["toys/mismatch"]
    assert run.results[1].verdict is Verdict.MISMATCH
    assert (run.seed, run.profile, run.selection) == (0, "default", "toys/mismatch toys/sound many/0[01]")
    assert not chosen.accepts(run)
    assert (record.events[0], record.events[-1]) == ("begin 4", "end")
    assert sorted(record.events[1:-1]) == sorted(names)


def test_expected_faults_are_accepted_and_strict_expectations_want_them(
    session: Callable[..., Session], tmp_path: Path
) -> None:
    file = tmp_path / "known.toml"
    file.write_text('[[expected]]\ncase = ["toys/mismatch", "toys/sound"]\nreason = "known"\n')
    with session(expectations=file) as chosen:
        assert chosen.run_case("toys/mismatch").expected == "known"
        assert len(chosen.cases) > 30, "all cases, whatever is selected"
    run = session("toys/mismatch", "toys/sound", expectations=file).run()
    assert not run.faults and [result.case for result in run.unexpected_passes] == ["toys/sound"]
    assert session("toys/sound", expectations=file).accepts(run)
    file.write_text("strict = true\n" + file.read_text())
    assert not session("toys/sound", expectations=file).accepts(run)


@pytest.mark.parametrize(
    ("select", "settings", "judged"),
    [
        (("held",), {}, True),
        (("many", "held"), {}, True),
        (("many/0[01]",), {}, False),
        (("many/0[01]", "held"), {}, False),
        (("held",), {"shard": (1, 1)}, False),
        (("many",), {"maxfail": 1}, False),
        (("steady", "held"), {}, False),
        (("steady", "pair"), {}, True),
    ],
)
def test_declared_numbers_are_judged_by_whole_rooms_only(
    session: Callable[..., Session],
    monkeypatch: pytest.MonkeyPatch,
    select: tuple[str, ...],
    settings: dict[str, Any],
    judged: bool,
) -> None:
    loose = CaseResult("declared/ten-times-too-loose", {"room": "declared"}, {Verdict.VIOLATION: 1})
    monkeypatch.setattr(delegatekit_conformance.session, "too_loose", lambda declared, results: loose)
    monkeypatch.setattr(delegatekit_conformance.session, "MEASURE_SCHEMES", frozenset({"steady", "pair"}))
    wrong = Outcome(Verdict.VIOLATION, "wrong", blame="backend")
    monkeypatch.setattr(
        Session,
        "_results",
        lambda self, names, facts: (
            CaseResult(name, {"room": name.partition("/")[0]}, {Verdict.VIOLATION: 1}, (wrong,)) for name in names
        ),
    )
    assert (loose.case in {result.case for result in session(*select, **settings).run().results}) is judged


def test_an_interrupt_has_the_results_so_far(session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    def results(*_: object) -> Iterator[CaseResult]:
        yield CaseResult("toys/sound", {"room": "toys"}, {Verdict.PASSED: 1})
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_results", results)
    record = Record()
    with pytest.raises(KeyboardInterrupt) as caught:
        session("toys/sound", "toys/abort", listener=record).run()
    assert isinstance(caught.value, Interrupted)
    assert [result.case for result in caught.value.run.results] == ["toys/sound"]
    assert record.events == ["begin 2", "toys/sound", "interrupted: 1 of 2 cases not run", "end"]


def test_sigterm_interrupts_as_the_keyboard_does_and_only_during_the_run(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def results(*_: object) -> Iterator[CaseResult]:
        yield CaseResult("toys/sound", {"room": "toys"}, {Verdict.PASSED: 1})
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    monkeypatch.setattr(Session, "_results", results)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted) as caught:
        session("toys/sound", "toys/abort").run()
    assert [result.case for result in caught.value.run.results] == ["toys/sound"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_progress_is_told_in_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar(pause=0.02)
    bar.begin(1200, {"a": CaseResult("a", {}, {Verdict.CRASH: 1}), "b": CaseResult("b", {}, {Verdict.PASSED: 1})})
    time.sleep(0.1)
    bar.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines and set(lines) == {"2 of 1,200 cases, 1 faulty, after 0 min"}


def test_a_fault_is_told_when_it_is_found_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    results: dict[str, CaseResult] = {}
    bar.begin(3, results)
    found = Outcome(Verdict.CRASH, "ended\nwith \x1b[31mSIGSEGV")
    for name, verdict, faults, expected in (
        ("good", Verdict.PASSED, (), None),
        ("known", Verdict.CRASH, (found,), "the vendor's fault"),
        ("bad", Verdict.CRASH, (found,), None),
    ):
        results[name] = CaseResult(name, {}, {verdict: 1}, faults, expected=expected)
        bar.result(results[name])
    bar.end()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("crash bad: ended")
    assert "\x1b" not in line


def test_every_name_of_the_face_is_there() -> None:
    for name in delegatekit_conformance.__all__:
        found = getattr(delegatekit_conformance, name)
        assert name.isupper() or found.__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Suite'"):
        _ = delegatekit_conformance.Suite
