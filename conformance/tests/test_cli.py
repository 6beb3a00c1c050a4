"""`delegatekit conform`: exit codes, messages, the table and the JSON document."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from delegatekit_conformance.cli import conform as command

InstallSeeded = Callable[..., None]


def conform(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, arguments)


def strict(text: str) -> dict[str, object]:
    """Parse JSON without the extensions that Python allows by default (NaN, Infinity)."""
    found: dict[str, object] = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    return found


def test_a_fault_gives_exit_code_1_a_table_and_json(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded(execute="outputs[0].fill_(float('inf')); return")
    path = tmp_path / "report.json"
    result = conform("seeded", "--select", "[ms][ui][lg]*", "--json", str(path))
    assert result.exit_code == 1, result.output
    assert "2 cases in" in result.stdout
    assert "1 of 2 operators delegated; 1 faults" in result.stdout
    report = strict(path.read_text())
    assert report["faults"] == 1
    assert {case["case"]: case["verdict"] for case in report["cases"]} == {  # type: ignore[attr-defined]
        "mul": "wrong result",
        "sigmoid": "correct, nothing delegated",
    }
    assert report["backend"] == {
        "name": "seeded",
        "distribution": "delegatekit-seeded",
        "version": "1.2",
        "api_version": "1.1",
        "compute_precision": "float32",
        "runtime": {"available": True, "reason": ""},
    }
    assert set(report["versions"]) >= {"delegatekit", "delegatekit-api", "delegatekit-seeded", "torch"}  # type: ignore[call-overload]
    assert report["seconds"] > 0  # type: ignore[operator]


def test_a_missing_runtime_is_said_clearly_and_no_fault(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded(available="False, 'no such hardware'")
    path = tmp_path / "report.json"
    result = conform("seeded", "--select", "mul", "--json", str(path))
    assert result.exit_code == 0, result.output
    assert "the runtime of seeded is not available: no such hardware" in result.stderr
    assert "compiled, runtime not available" in " ".join(result.stdout.split())
    assert strict(path.read_text())["backend"]["runtime"] == {"available": False, "reason": "no such hardware"}  # type: ignore[index]


def test_wrong_usage_gives_exit_code_2(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded()
    unknown = conform("nobody")
    assert unknown.exit_code == 2
    assert "no backend 'nobody' is installed" in unknown.stderr
    assert "seeded" in unknown.stderr
    empty = conform("seeded", "--select", "nothing like this")
    assert empty.exit_code == 2
    assert "no case matches" in empty.stderr
    assert "conv2d" in empty.stderr
    assert conform("seeded", "--json", str(tmp_path)).exit_code == 2
    assert conform("seeded", "--json", str(tmp_path / "missing" / "report.json")).exit_code == 2
    assert conform("seeded", "--jobs", "0").exit_code == 2


def test_a_precision_that_the_suite_does_not_know_stops_it(install_seeded: InstallSeeded) -> None:
    install_seeded(description="compute_precision='int3'")
    result = conform("seeded")
    assert result.exit_code == 1
    assert "'int3' is unknown" in str(result.exception)


def test_the_command_is_plugged_in_and_light() -> None:
    code = (
        "import sys, delegatekit_conformance.cli\n"
        "print([name for name in ('torch', 'numpy') if name in sys.modules])\n"
        "from delegatekit.cli import main; sys.argv = ['delegatekit', '--help']; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("[]")
    assert "conform" in result.stdout
