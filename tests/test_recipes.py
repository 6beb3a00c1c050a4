"""docs/recipes.md, followed word by word: the diffs apply to this repository, and the added code passes its tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packages import FOLDERS, ROOT

PAGE = ROOT / "docs" / "recipes.md"
TESTS = (
    "examples/minimal_backend/tests/test_backend.py::test_the_larger_of_two_numbers",
    "toolkit/tests/composed/test_accuracy.py::test_special_values_of_pairs_are_pytorchs[logaddexp-logaddexp]",
    "core/tests/edge/test_promotion.py::test_a_square_is_a_product",
    "conformance/tests/test_patterns.py::test_every_builder_says_what_it_is_about[gated-sum]",
    "tests/cli/test_cli.py::test_the_folder_is_named",
    "examples/minimal_backend/tests/test_backend.py::TestPlugin::test_the_homepage_is_named",
    "core/tests/pte/test_schema.py::test_named_data_has_an_alignment",
)


def diffs() -> list[str]:
    return re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository with every diff of the page applied."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    copy = tmp_path_factory.mktemp("repository")
    for file in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / file).is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, copy / file)
    for number, diff in enumerate(diffs()):
        applied = subprocess.run(
            ["git", "apply", "-"], cwd=copy, input=diff, capture_output=True, text=True, check=False
        )
        assert not applied.returncode, f"diff {number} does not apply any more:\n{applied.stderr}"
    return copy


def test_the_diffs_apply(repository: Path) -> None:
    assert len(diffs()) >= 11
    lines = [line for diff in diffs() for line in diff.splitlines() if re.match(r"[+-](?!\+\+|--)", line)]
    for line in lines:
        if line.startswith("+") and line[1:].strip():
            assert any(line[1:] in path.read_text("utf-8") for path in _changed(repository)), line


def _changed(repository: Path) -> list[Path]:
    names = re.findall(r"^\+\+\+ b/(.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [repository / name for name in names]


def test_what_they_add_passes_its_tests(repository: Path) -> None:
    sources = [*(path for pattern in FOLDERS for path in repository.glob(f"{pattern}/src")), repository]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, sources))}
    # Without the packages' own configuration of pytest-xdist, in one process.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS]
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stdout[-5000:]
    assert f"{len(TESTS)} passed" in result.stdout


def test_they_are_formatted(repository: Path) -> None:
    for arguments in (["check", "--no-cache"], ["format", "--no-cache", "--check"]):
        files = [str(path.relative_to(repository)) for path in _changed(repository)]
        command = [sys.executable, "-m", "ruff", *arguments, *files]
        result = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_a_backend_starts_as_the_page_says(tmp_path: Path) -> None:
    """The shell commands of "Start a backend", up to those that set up an environment."""
    (code,) = re.findall(r"^```sh\n(cp -r .*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    commands = code.split("make setup")[0]
    (tmp_path / "plugins").mkdir()
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    subprocess.run(
        ["git", "init", "--quiet"], cwd=tmp_path, check=True
    )  # as a reader has it: what is copied is untracked
    subprocess.run(["bash", "-e", "-c", commands], cwd=tmp_path, check=True, capture_output=True)
    made = tmp_path / "plugins" / "duet"
    assert (made / "src" / "delegatekit_duet" / "plugin.py").is_file()
    assert not (made / "src" / "delegatekit_demo").exists()
    texts = [path.read_text("utf-8") for path in made.rglob("*") if path.is_file()]
    assert not any(re.search("demo", text, re.IGNORECASE) for text in texts)
