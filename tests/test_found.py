"""Faults of other projects: the page is up to date, the code that avoids each exists, and the snippets show them."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "found"


def loaded(name: str) -> ModuleType:
    """A module of the folder, under a name of its own."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        if name == "__main__":
            del sys.modules[name]
    return module


page = loaded("page")
NAMES = list(page.FAULTS)


def test_the_page_is_up_to_date() -> None:
    observed = json.loads(page.OBSERVED.read_text("utf-8"))
    assert observed.keys() <= page.FAULTS.keys(), "observed.json has faults without a file: run make found"
    assert page.PAGE.read_text("utf-8") == page.render(observed), "run make found"


def test_many_faults_of_several_products_are_shown() -> None:
    assert len(NAMES) >= 25
    assert len({fault.product for fault in page.FAULTS.values()}) >= 5


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_was_seen_and_is_avoided_somewhere(name: str) -> None:
    fault = page.FAULTS[name]
    assert name in json.loads(page.OBSERVED.read_text("utf-8")), "its snippet has no recorded output"
    assert re.fullmatch(r"\d+(\.\d+)+", fault.version) and fault.title.endswith(".")
    for text in fault.avoided:
        path, names = page.place(text)
        source = (ROOT / path).read_text("utf-8")
        for part in names.split("."):
            assert re.search(rf"^\s*(def|class) {part}\b|^\s*{part}\b.*=", source, re.MULTILINE), (
                f"{path} has no {part}"
            )


def test_a_file_that_lacks_something_is_named(tmp_path: Path) -> None:
    file = tmp_path / "half.py"
    file.write_text('"""A fault."""\nPRODUCT = "X"\n')
    with pytest.raises(ValueError, match=r"half.py lacks AVOIDED, PACKAGE, VERSION"):
        page.Fault.read(file)


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Path]:
    """The command, with a copy of the folder in which a test can put faults."""
    found = tmp_path / "docs" / "found"
    found.mkdir(parents=True)
    for name in ("__main__", "page", "tools"):
        (found / f"{name}.py").write_text((FOLDER / f"{name}.py").read_text())
    return page, found


SOURCE = '''"""Something is wrong."""

PRODUCT, X = "X", 1
PRODUCT = "X"
PACKAGE = "{package}"
VERSION = "1.0"
AVOIDED = ("a.py: b",)
{more}

def main():
    """Show it."""
    {body}
'''


@pytest.mark.parametrize(
    ("package", "body", "more", "verdict"),
    [
        ("pytest", "return 'two\\nlines'", "", "still there     it: two lines"),
        ("pytest", "return None", "", "fixed           it: not there any more; the page says pytest 1.0, installed is"),
        ("no-such-package", "return None", "", "cannot run here it: no-such-package is not installed"),
        (
            "pytest",
            "from tools import CannotRunHereError\n    raise CannotRunHereError('no device')",
            "",
            "cannot run here it: no device",
        ),
        ("pytest", "return 1 / 0", "", "broken          it: the snippet ended with exit code 1: ZeroDivisionError"),
        (
            "pytest",
            "import os, signal\n    os.kill(os.getpid(), signal.SIGABRT)",
            'ENDS_BY = "SIGABRT"',
            "still there     it: the process ends by SIGABRT",
        ),
        ("pytest", "return None", 'ENDS_BY = "SIGABRT"', "fixed           it:"),
        (
            "pytest",
            "import os, signal\n    os.kill(os.getpid(), signal.SIGABRT)",
            "",
            "broken          it: the snippet ended with exit code -6",
        ),
    ],
)
def test_each_verdict(command: tuple[ModuleType, Path], package: str, body: str, more: str, verdict: str) -> None:
    import subprocess

    _, found = command
    text = SOURCE.replace('PRODUCT, X = "X", 1\n', "")
    (found / "it.py").write_text(text.format(package=package, body=body, more=more))
    run = subprocess.run([sys.executable, str(found)], capture_output=True, text=True, check=False)
    assert verdict in run.stdout, run.stdout + run.stderr
    assert run.returncode == int(verdict.startswith(("fixed", "broken")))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_fault_is_still_there_in_its_version(name: str) -> None:
    import subprocess

    run = subprocess.run([sys.executable, str(FOLDER), name], capture_output=True, text=True, timeout=180, check=False)
    if "cannot run here" in run.stdout:
        pytest.skip(run.stdout)
    assert "still there" in run.stdout, run.stdout
