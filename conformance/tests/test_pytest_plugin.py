"""The suite as pytest items: in runs of its own, and without disturbing others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

InstallSeeded = Callable[..., None]
#: Two cases, of which the backend of these tests takes the first.
CHOICE = "operators/aten.mul.Tensor/float32 or operators/aten.sigmoid.default/float32"
QUICK = ("--backend", "seeded", "--conformance-profile", "quick", "-k", CHOICE, "-rA")


def run(folder: Path, *arguments: str, suite: bool = True) -> tuple[int, str]:
    """Exit code and output of a pytest run in a folder, without any configuration."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        [*command, "--pyargs", "delegatekit_conformance"] if suite else command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_without_a_backend_there_is_one_clear_error(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded()
    code, output = run(tmp_path)
    assert code == pytest.ExitCode.USAGE_ERROR
    assert output.strip().startswith("ERROR: name the backend to test: --backend NAME (installed: ")
    assert len(output.strip().splitlines()) == 1
    code, output = run(tmp_path, "--backend", "nobody")
    assert code == pytest.ExitCode.USAGE_ERROR and "no backend 'nobody' is installed" in output


def test_other_runs_are_not_disturbed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "def pytest_addoption(parser):\n    parser.addoption('--backend', default='mine')\n"
    )
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(request):\n"
        "    assert request.config.getoption('--backend') == 'mine'\n"
        "    assert not {'torch', 'delegatekit', 'delegatekit_conformance.suite'} & set(sys.modules)\n"
    )
    code, output = run(tmp_path, "-p", "no:hypothesispytest", suite=False)
    assert code == 0 and "1 passed" in output, output


def test_an_option_of_the_user_with_the_same_name_is_taken(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded()
    (tmp_path / "conftest.py").write_text("def pytest_addoption(parser):\n    parser.addoption('--backend')\n")
    code, output = run(tmp_path, "--backend", "seeded", "--collect-only", "-q", "-k", CHOICE)
    assert code == 0, output
    assert "suite.py::operators/aten.mul.Tensor/float32" in output
    assert "2/" in output.splitlines()[-1], "and no other is selected"


@pytest.mark.slow
def test_faults_fail_with_a_snippet_and_processes_share_the_work(install_seeded: InstallSeeded, tmp_path: Path) -> None:
    install_seeded(execute="os.kill(os.getpid(), signal.SIGSEGV)")
    code, output = run(tmp_path, *QUICK, "-n", "2")
    assert code == 1, output
    assert "1 failed, 1 passed" in output
    assert "crash: the process ended with signal SIGSEGV in execute (" in output
    assert "delegatekit.lower(" in output, "the snippet"
    assert "in runtest" not in output and "CaseFault" not in output, "no traceback of the suite itself"


@pytest.mark.slow
def test_expected_faults_are_xfails_and_unexpected_passes_are_shown(
    install_seeded: InstallSeeded, tmp_path: Path
) -> None:
    install_seeded(execute="raise ValueError('device lost')")
    file = tmp_path / "known.toml"
    entries = '[[expected]]\ncase = "operators/aten.mul*"\nverdict = "run error"\nreason = "it gets lost"\n'
    file.write_text(entries + '[[expected]]\ncase = "operators/aten.sigmoid*"\nreason = "old"\n')
    code, output = run(tmp_path, *QUICK, "--conformance-expectations", str(file))
    assert code == 0, output
    assert "1 xfailed, 1 xpassed" in output
    assert "it gets lost" in output and "old" in output
    file.write_text("strict = true\n" + file.read_text())
    code, output = run(tmp_path, *QUICK, "--conformance-expectations", str(file))
    assert code == 1 and "[XPASS(strict)] no fault, but one is expected: old" in output
    file.write_text("[[expected]]\ncase = 1\n")
    code, output = run(tmp_path, *QUICK, "--conformance-expectations", str(file))
    assert code != 0 and "entry 1 (line 1): case is 1, not a string" in output
