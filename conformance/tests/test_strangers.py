"""Faults by readers of the plugins' sources alone, and those that the quick profile finds."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delegatekit_conformance.mutants.sites import Plugin

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("strangers")
FAULTS: dict[str, Any] = tomllib.loads((FOLDER / "faults.toml").read_text("utf-8"))


def faulty(name: str, folder: Path) -> Path:
    """A copy of the plugin's sources with the fault, under the path that they have in the repository."""
    plugin = Plugin.of(FAULTS[name]["backend"])
    sources = folder / "plugins" / plugin.backend / "src"
    shutil.copytree(plugin.folder, sources / plugin.package, ignore=shutil.ignore_patterns("__pycache__"))
    applied = subprocess.run(
        ["git", "apply", "-p1", str(FOLDER / f"{name}.diff")], check=False, cwd=folder, capture_output=True, text=True
    )
    assert not applied.returncode, f"the fault must be written anew: {applied.stderr}"
    return sources


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_still_one_of_the_sources(name: str, tmp_path: Path) -> None:
    sources = faulty(name, tmp_path)
    plugin = Plugin.of(FAULTS[name]["backend"])
    changed = [
        path.relative_to(plugin.folder).as_posix()
        for path in plugin.folder.rglob("*.py")
        if path.read_bytes() != (sources / plugin.package / path.relative_to(plugin.folder)).read_bytes()
    ]
    assert changed


def test_every_fault_has_its_change() -> None:
    assert {path.stem for path in FOLDER.glob("*.diff")} == set(FAULTS)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True, reason=fault["missed"]) if "missed" in fault else ())
        for name, fault in FAULTS.items()
    ],
)
def test_the_quick_profile_finds_it(name: str, tmp_path: Path) -> None:
    sources, report = faulty(name, tmp_path), tmp_path / "report.json"
    select = [word for room in FAULTS[name]["select"] for word in ("--select", room)]
    command = [sys.executable, "-m", "delegatekit", "conform", FAULTS[name]["backend"], "--quick", *select]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(sources), os.environ.get("PYTHONPATH", "")))}
    subprocess.run([*command, "--json", str(report)], check=False, env=environment, cwd=tmp_path, capture_output=True)
    cases = json.loads(report.read_text("utf-8"))["cases"]
    assert any(case["faults"] and case["expected"] is None for case in cases)
