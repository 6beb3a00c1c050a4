"""`delegatekit conform`: exit codes, messages, files; the workers are real in a few tests, simulated in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from delegatekit_conformance import cli
from delegatekit_conformance.outcome import CaseResult, Outcome, Verdict
from delegatekit_conformance.session import Session

InstallSeeded = Callable[..., None]
#: Two cases, of which the backend of these tests takes the first.
CASES = ("operators/aten.mul.Tensor/float32", "operators/aten.sigmoid.default/float32")
SELECT = [part for name in CASES for part in ("--select", name)]


def conform(*arguments: str) -> Result:
    return CliRunner().invoke(cli.conform, arguments)


def result(name: str, verdict: Verdict = Verdict.DELEGATED) -> CaseResult:
    faults = (Outcome(verdict, "as played", blame="backend"),) if verdict.is_fault else ()
    return CaseResult(name, {"room": name.partition("/")[0]}, {verdict: 1}, faults)


Play = Callable[..., list[str]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, install_seeded: InstallSeeded) -> Play:
    """Simulates verdicts by case (DELEGATED for others, an exception is raised); returns the list of the cases run."""
    install_seeded()

    def start(**verdicts: Verdict | type[BaseException]) -> list[str]:
        run: list[str] = []

        def results(session: Session, names: Sequence[str], facts: object) -> Iterator[CaseResult]:
            for name in names:
                played = verdicts.get(name.split(".")[1], Verdict.DELEGATED)
                if not isinstance(played, Verdict):
                    raise played
                run.append(name)
                yield result(name, played)

        monkeypatch.setattr(Session, "_results", results)
        return run

    return start


def strict(path: Path) -> dict[str, Any]:
    """Parse JSON without the extensions that Python allows by default (NaN, Infinity)."""
    found: dict[str, Any] = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return found


def test_a_fault_gives_exit_code_1_a_snippet_and_every_report(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded(execute="outputs[0].fill_(float('inf')); return")
    names = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "markdown", "html", "csv")}
    outputs = [part for kind, path in names.items() for part in (f"--{kind}", str(path))]
    found = conform("seeded", *SELECT, "--quick", "--jobs", "1", "--seed", "3", "--device", "name=emulator", *outputs)
    assert found.exit_code == 1, found.output
    assert "delegatekit.lower" in found.stdout, "the snippet"
    report = strict(names["json"])
    verdicts = {case["case"]: case["verdict"] for case in report["cases"]}
    assert verdicts == dict(zip(CASES, ("wrong result", "correct, nothing delegated"), strict=True))
    assert (report["seed"], report["profile"], report["device"]) == (3, "quick", {"name": "emulator"})
    assert report["selection"] == " ".join(CASES)
    assert set(report["versions"]) >= {"delegatekit", "delegatekit-api", "delegatekit-seeded", "torch"}
    assert all(path.stat().st_size > 100 for path in names.values())
    again = conform("diff", str(names["json"]), str(names["json"]))
    assert again.exit_code == 0 and "No regression" in again.stdout
    assert conform("report", str(names["json"]), "--html", str(tmp_path / "again.html")).exit_code == 0


@pytest.mark.slow
def test_a_missing_runtime_is_said_clearly_and_no_fault(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded(available="False, 'no such hardware'")
    found = conform("seeded", "--select", CASES[0], "--quick", "--json", str(tmp_path / "report.json"))
    assert found.exit_code == 0, found.output
    assert "the runtime of seeded is not available: no such hardware" in found.stderr
    (case,) = strict(tmp_path / "report.json")["cases"]
    assert case["verdict"] == "compiled, runtime not available"


def test_a_fault_of_core_is_shown_and_does_not_fail(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    play()
    core = CaseResult(CASES[0], {"room": "operators"}, {}, (), (Outcome(Verdict.MISMATCH, "of core", blame="core"),))
    monkeypatch.setattr(Session, "_results", lambda *_: (one for one in [core]))
    found = conform("seeded", "--select", CASES[0])
    assert found.exit_code == 0, found.output
    assert "faults of core" in found.stdout and "of core" in found.stdout


def test_expected_faults_do_not_fail_and_unexpected_passes_are_reported(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "known.toml"
    file.write_text(
        '[[expected]]\ncase = "operators/aten.mul*"\nreason = "known"\n[[expected]]\ncase = "x"\nreason = "y"\n'
    )
    arguments = ("seeded", *SELECT, "--expectations", str(file))
    play(mul=Verdict.CRASH)
    found = conform(*arguments)
    assert found.exit_code == 0, found.output
    assert "expected faults" in found.stdout and "known" in found.stdout
    assert "expectations that match no case" in found.stdout
    play()
    found = conform(*arguments)
    assert found.exit_code == 0 and "unexpected passes" in found.stdout
    file.write_text("strict = true\n" + file.read_text())
    assert conform(*arguments).exit_code == 1
    file.write_text("[[expected]]\ncase = 3\n")
    found = conform(*arguments)
    assert "entry 1 (line 1)" in str(found.exception)


def test_finished_cases_are_not_run_again(play: Play, tmp_path: Path) -> None:
    file, report = tmp_path / "finished.jsonl", tmp_path / "report.json"
    arguments = ("seeded", *SELECT, "--resume", str(file), "--json", str(report))
    run = play(mul=Verdict.CRASH, sigmoid=KeyboardInterrupt)
    found = conform(*arguments)
    assert found.exit_code == 130 and "interrupted: 1 of 2 cases not run" in found.stderr
    assert run == [CASES[0]]
    assert [case["case"] for case in strict(report)["cases"]] == [CASES[0]], "finished cases are written"
    run = play()
    found = conform(*arguments)
    assert run == [CASES[1]] and "1 of 2 cases are finished" in found.stderr
    assert found.exit_code == 1, "the crash of the first part counts"
    assert [case["case"] for case in strict(report)["cases"]] == list(CASES)
    assert "another run: seed is 0 there and 1 here" in str(conform(*arguments, "--seed", "1").exception)


def test_a_run_stops_after_so_many_faults(play: Play) -> None:
    run = play(mul=Verdict.CRASH)
    found = conform("seeded", *SELECT, "--maxfail", "1")
    assert found.exit_code == 1 and run == [CASES[0]]
    assert "stopped after 1 cases with faults; 1 not run" in found.stderr


def test_names_are_listed_and_shards_are_all_of_them(install_seeded: InstallSeeded) -> None:
    install_seeded()
    whole = conform("seeded", "--list", "--select", "contract", "--select", "operators/aten.add*").stdout.split()
    assert "operators/aten.add.Tensor/float32" in whole and len(whole) > 30
    parts = [
        conform("seeded", "--list", "--shard", f"{i}/3", "--select", "contract", "--select", "operators/aten.add*")
        for i in (1, 2, 3)
    ]
    assert sorted(name for part in parts for name in part.stdout.split()) == sorted(whole)


def test_wrong_usage_gives_exit_code_2(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "protected").touch(0o444)
    for arguments, message in {
        ("nobody",): "no backend 'nobody' is installed (installed: ",
        ("seeded", "--select", "nothing like this"): "no case matches 'nothing like this'; there are",
        ("seeded", "--profile", "slow"): "no profile 'slow'",
        ("seeded", "--shard", "3/2"): "--shard '3/2' is not",
        ("seeded", "--option", "novalue"): "--option 'novalue' is not of the form KEY=VALUE",
        ("seeded", "--json", str(tmp_path)): "is a folder",
        ("seeded", "--json", str(tmp_path / "missing" / "report.json")): "does not exist",
        ("seeded", "--html", str(tmp_path / "fifo")): "is a FIFO, not a file",
        ("seeded", "--resume", str(tmp_path / "fifo")): "is a FIFO, not a file",
        ("seeded", "--junit", str(tmp_path / "protected")): "is write-protected",
        ("seeded", "--csv", "one", "--markdown", "one"): "is the same file as one",
        ("seeded", "--jobs", "0"): "",
        ("diff", str(tmp_path / "a.json"), str(tmp_path / "b.json")): "a.json does not exist",
    }.items():
        found = conform(*arguments)
        assert found.exit_code == 2, arguments
        assert message in found.stderr, arguments


def test_a_wrong_option_of_the_backend_is_told_before_anything_runs(install_seeded: InstallSeeded) -> None:
    install_seeded()
    found = conform("seeded", "--option", "seeded.speed=3")
    assert found.exit_code == 1
    assert "speed" in str(found.exception)


def test_the_command_is_plugged_in_and_light() -> None:
    code = (
        "import sys, delegatekit_conformance.cli\n"
        "print([name for name in ('torch', 'numpy', 'hypothesis') if name in sys.modules])\n"
        "from delegatekit.cli import main; sys.argv = ['delegatekit', 'conform', '--help']; main()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("[]")
    assert all(command in found.stdout for command in ("run", "diff", "report"))
