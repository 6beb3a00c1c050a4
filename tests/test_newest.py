"""The page of what breaks with the newest releases: the parts that need no network."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packages import ROOT


@pytest.fixture
def newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """docs/newest.py, which writes into a folder of its own."""
    spec = importlib.util.spec_from_file_location("newest", ROOT / "docs" / "newest.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "newest", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    return module


def test_every_tool_is_pinned_and_its_tests_exist(newest: ModuleType) -> None:
    for name, tests in newest.TESTS.items():
        assert newest.pinned(name)
        for path in tests:
            assert (ROOT / path).exists(), path


def test_the_page_has_the_lines_that_the_script_reads_back(newest: ModuleType) -> None:
    lines = newest.kept()
    assert lines and lines.keys() <= newest.TESTS.keys()
    assert newest.PAGE.read_text("utf-8") == newest.HEAD + "\n".join([*lines.values(), ""])
    assert all(line.startswith(f"| {name} | {newest.pinned(name)} |") for name, line in lines.items())


def test_a_failed_test_is_told_with_its_reason(newest: ModuleType, tmp_path: Path) -> None:
    tests = tmp_path / "test_tool.py"
    tests.write_text(
        "import os, pytest\n"
        "def test_good(): assert os.environ['PYTHONPATH'].startswith('/newer')\n"
        "def test_bad(): raise ValueError('a | b')\n"
        "def test_absent(): pytest.skip('no tool')\n"
    )
    found = newest.tested([str(tests)], "/newer")
    assert (found.passed, found.skipped, len(found.failures)) == (1, ["no tool"], 1)
    ((test, reason),) = found.failures.items()
    assert test.endswith("test_tool.py::test_bad") and reason == r"ValueError: a \| b"


def test_an_unknown_tool_is_refused(newest: ModuleType) -> None:
    with pytest.raises(SystemExit, match="unknown: nothing; there are torch, torchao"):
        newest.main(["nothing"])
