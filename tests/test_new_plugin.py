"""A new folder under plugins/ is all that a new backend needs: nothing else in the repository is edited for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packages import FOLDERS, ROOT, Package

RECIPES = ROOT / "docs" / "recipes.md"
#: The name in the recipe, as long as the example's, so that lines stay as they are formatted.
NAME = "duet"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, write_metadata: Any) -> Path:
    """A copy of this repository in which a backend was started as docs/recipes.md says."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    copy = tmp_path_factory.mktemp("repository")
    for file in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / file).is_file():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, copy / file)
    subprocess.run(["git", "init", "--quiet"], cwd=copy, check=True)
    (recipe,) = re.findall(r"^```sh\n(cp -r .*?)^make setup$", RECIPES.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    subprocess.run(["bash", "-e", "-c", recipe], cwd=copy, check=True, capture_output=True)
    # As `make setup` does for every package that the Makefile finds.
    write_metadata(copy, Package(copy / "plugins" / NAME))
    return copy


def run(repository: Path, *command: str) -> str:
    """The output of a command that runs in the copy, with the packages of the copy."""
    sources = sorted(str(path) for pattern in FOLDERS for path in repository.glob(f"{pattern}/src"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sources, str(repository)])}
    result = subprocess.run(command, cwd=repository, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-5000:]
    return result.stdout


def test_make_finds_it(repository: Path) -> None:
    assert f"plugins/{NAME}" in run(repository, "make", "-s", "packages").split()
    assert f" plugins/{NAME}/tests" in run(repository, "make", "-n", "test", f"PACKAGE=plugins/{NAME}")
    assert f" {NAME} " in run(repository, "make", "-n", "conform")


@pytest.mark.slow
def test_it_is_linted(repository: Path) -> None:
    for arguments in (["check", "--no-cache", "."], ["format", "--no-cache", "--check", "."]):
        run(repository, sys.executable, "-m", "ruff", *arguments)
    files = run(repository, sys.executable, "-m", "ruff", "check", "--no-cache", "--show-files", ".")
    assert f"plugins/{NAME}/src/delegatekit_{NAME}/plugin.py" in files


@pytest.mark.slow
def test_its_types_are_checked(repository: Path) -> None:
    said = run(repository, sys.executable, "-m", "mypy", "--cache-dir", str(repository / ".mypy_cache"))
    sources = [path for pattern in FOLDERS for path in repository.glob(f"{pattern}/src/**/*.py")]
    assert f"no issues found in {len(sources)} source files" in said


@pytest.mark.slow
def test_it_is_documented_and_its_borders_are_watched(repository: Path) -> None:
    run(repository, sys.executable, "docs/generate.py")
    assert f"`{NAME.title()}Backend`" in (repository / "docs" / f"operators-{NAME}.md").read_text()
    said = run(repository, sys.executable, "-m", "pytest", "-v", "tests/test_borders.py", "tests/test_docs.py")
    assert len(re.findall(rf"\[plugins/{NAME}\] PASSED", said)) > 5


@pytest.mark.slow
def test_its_tests_run(repository: Path) -> None:
    collected = run(repository, sys.executable, "-m", "pytest", "-q", "--collect-only")
    assert f"plugins/{NAME}/tests/" in collected
    assert " passed" in run(repository, sys.executable, "-m", "pytest", "-q", f"plugins/{NAME}/tests")


@pytest.mark.parametrize("fault", ["not installed", "another package", "no package"])
def test_a_page_that_cannot_be_written_is_explained_in_one_sentence(
    fault: str, repository: Path, tmp_path: Path
) -> None:
    for name in ("docs", "core/src", "packages.py", "plugin_api/src", "toolkit/src"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(repository / name)
    shutil.copytree(repository / "plugins" / NAME, tmp_path / "plugins" / NAME)
    package = tmp_path / "plugins" / NAME / "src" / f"delegatekit_{NAME}"
    if fault == "another package":
        package.rename(package.with_name("delegatekit_demo"))
    elif fault == "no package":
        shutil.rmtree(package)
    sources = [str(tmp_path / name) for name in ("core/src", "plugin_api/src", "toolkit/src")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources)}
    command = [sys.executable, "docs/generate.py", "--check"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 1 and f"plugins/{NAME}" in line
