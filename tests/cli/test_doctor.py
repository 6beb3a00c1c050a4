"""`delegatekit doctor`: what is found, what is missing and the line that gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delegatekit import __version__
from delegatekit_api.versions import API_VERSION
from delegatekit_tools import installation


@pytest.fixture(autouse=True)
def only_test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips torch and the other installed packages: importing them would take seconds."""
    monkeypatch.setenv("DELEGATEKIT_BACKENDS", "nothing,broken")
    monkeypatch.setattr(installation, "_torch", lambda seconds: {"version": "2.9.0"})


def test_a_sound_installation_has_no_problems(cli: Any) -> None:
    text = cli("doctor").stdout
    first, *_ = text.splitlines()
    assert first == f"DelegateKit {__version__}, takes plugins of API {API_VERSION.major}.0 to {API_VERSION}"
    assert "torch 2.9.0\n" in text
    assert f"backend nothing (API {API_VERSION}): lowers; does not run here: the plugin has no runtime" in text
    assert "DELEGATEKIT_BACKENDS=nothing,broken" in text
    assert text.endswith("\nno problems found\n") and "not lower here" not in text


def test_what_lacks_a_vendors_tool_is_counted_beside_no_problems(cli: Any, install_plugin: Any) -> None:
    source = """
from delegatekit_api import *

@hookimpl
def describe_backend():
    return BackendDescription("broken", "BrokenBackend", "delegatekit-broken", "1.2", "x")

@hookimpl
def create_partitioner(options): ...

@hookimpl
def compiler_availability(options):
    return Availability(False, "Acme's compiler is not installed: it comes from acme.example")
"""
    install_plugin("broken", source)
    text = cli("doctor").stdout
    assert f"backend broken (API {API_VERSION}): does not lower here: Acme's compiler is not installed" in text
    assert text.endswith("\n1 backend does not lower here: the reason is told above\nno problems found\n")


def test_the_facts_of_a_bug_report_are_one_json(cli: Any) -> None:
    found = json.loads(cli("doctor", "--json").stdout)
    assert (found["delegatekit"], found["plugin_api"]) == (__version__, str(API_VERSION)) and found["problems"] == []
    (backend,) = (item for item in found["backends"] if item["info"]["name"] == "nothing")
    assert backend["info"]["status"] == "ready" and backend["runtime"]["available"] is False
    names = [item["name"] for item in found["distributions"]]
    assert {"delegatekit", "delegatekit-api", "delegatekit-toolkit", "delegatekit-nothing"} <= set(names)
    assert set(found["python"]) == {"version", "implementation", "executable", "virtual environment"}


def test_what_is_missing_comes_with_the_line_that_gets_it(cli: Any, install_plugin: Any) -> None:
    metadata = (
        "Requires-Dist: absent-tool>=3\nRequires-Dist: numpy>=1000\nProvides-Extra: fast\n"
        "Requires-Dist: absent-library; extra == 'fast'\n"
    )
    install_plugin("broken", "raise ImportError('no tool')", metadata=metadata)
    result = cli("doctor", code=1)
    problems = result.stdout.partition("problems:\n")[2]
    assert (
        "delegatekit-broken needs absent-tool>=3: absent-tool is not installed\n    -> pip install 'absent-tool>=3'"
        in problems
    )
    assert "numpy is " in problems and "-> pip install 'numpy>=1000'" in problems
    assert "backend broken is broken: importing" in problems and "no tool" in problems
    assert "extra fast: absent-library is not installed -> pip install 'delegatekit-broken[fast]'" in result.stdout
    assert len(json.loads(cli("doctor", "--json", code=1).stdout)["problems"]) == 3


def test_a_damaged_distribution_and_a_torch_that_does_not_start_are_told(
    cli: Any, install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("broken", metadata="Requires-Dist: ][\n")
    monkeypatch.setattr(installation, "_torch", lambda seconds: {"reason": "libgomp.so.1 is missing"})
    text = cli("doctor", code=1).stdout
    assert "delegatekit-broken: its metadata cannot be read (InvalidRequirement" in text
    assert "torch cannot be imported: libgomp.so.1 is missing\n    -> pip install --force-reinstall torch" in text


def test_a_torch_that_fails_or_hangs_is_no_reason_to_stop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    (tmp_path / "torch.py").write_text("raise OSError('libgomp.so.1 is missing')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installation._torch(60.0) == {"reason": "OSError: libgomp.so.1 is missing"}
    (tmp_path / "torch.py").write_text("import time; time.sleep(60)")
    assert installation._torch(0.5)["reason"].startswith("importing it took longer")
