"""docs/tutorial.md, followed word by word: a new project, its files and diffs, and the tests that they add."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packages import FOLDERS, ROOT, Package

from delegatekit_tools.project import create

pytest.importorskip("copier", reason="needs delegatekit-tools[new]")
pytest.importorskip("transformers", reason="has the network of the tutorial")

PAGE = ROOT / "docs" / "tutorial.md"
#: A file of the project with its text, or a diff.
STEP = re.compile(r"^(?:`(?P<path>[\w/.]+)`:\n\n```python\n(?P<text>.*?)|```diff\n(?P<diff>.*?))^```$", re.M | re.S)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, write_metadata: Any) -> tuple[Path, dict[str, str]]:
    """The project after all steps, and the environment in which it counts as installed."""
    folder = tmp_path_factory.mktemp("tutorial") / "delegatekit-acme"
    create("acme", folder)
    for number, step in enumerate(STEP.finditer(PAGE.read_text("utf-8"))):
        if step["path"]:
            assert not (folder / step["path"]).exists(), step["path"]
            (folder / step["path"]).write_text(step["text"], encoding="utf-8")
            continue
        applied = subprocess.run(
            ["git", "apply", "-"], cwd=folder, input=step["diff"], capture_output=True, text=True, check=False
        )
        assert not applied.returncode, f"step {number} does not apply any more:\n{applied.stderr}"
    metadata = write_metadata(tmp_path_factory.mktemp("metadata"), Package(folder))
    sources = [folder / "src", metadata, *(path for pattern in FOLDERS for path in ROOT.glob(f"{pattern}/src"))]
    return folder, os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources)), "OMP_NUM_THREADS": "1"}


def run(project: tuple[Path, dict[str, str]], *command: str) -> str:
    folder, environment = project
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=folder, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def test_the_steps_are_all_there() -> None:
    steps = list(STEP.finditer(PAGE.read_text("utf-8")))
    assert len(steps) == len(re.findall(r"^```(?:python|diff)$", PAGE.read_text("utf-8"), re.M)) >= 10


def test_the_networks_of_the_tutorial_are_right(project: tuple[Path, dict[str, str]]) -> None:
    said = run(project, "pytest", "-q", "-p", "no:cacheprovider", "tests/test_mobilenet.py", "tests/test_compiler.py")
    assert "6 passed" in said


def test_the_project_stays_linted(project: tuple[Path, dict[str, str]]) -> None:
    run(project, "ruff", "check", "--no-cache", ".")
    run(project, "ruff", "format", "--no-cache", "--check", ".")


@pytest.mark.slow
def test_the_project_stays_typed(project: tuple[Path, dict[str, str]]) -> None:
    run(project, "mypy", "--cache-dir", os.devnull)


@pytest.mark.slow
def test_the_project_passes_conformance(project: tuple[Path, dict[str, str]]) -> None:
    run(project, "delegatekit", "conform", "acme", "--quick")
