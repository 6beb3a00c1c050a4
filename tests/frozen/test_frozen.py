"""The version matrix: plugins as they were at each API version, as wheels, on today's core."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from frozen.build import FROZEN, LAST, ROOT, Frozen, encounter, history, sources, unpacked, wheel_of
from frozen.encounter import deviation
from packages import Package, examples, packages

import delegatekit
from delegatekit_api import ApiVersion
from delegatekit_api.versions import API_VERSION

each_frozen = pytest.mark.parametrize("frozen", FROZEN, ids=lambda frozen: frozen.folder.name)


def meet(frozen: Frozen, site: Path, paths: list[str] | None = None) -> dict[str, Any]:
    """What `encounter.py meet` says of a plugin on today's core, or on that of these paths."""
    unpacked(frozen.wheel, site)
    result = encounter("meet", frozen.backend, frozen.networks, site, frozen.folder, paths or sources(ROOT))
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return told


@each_frozen
def test_a_plugin_of_then_works_on_todays_core(frozen: Frozen, tmp_path: Path) -> None:
    told = meet(frozen, tmp_path)
    if told["status"] == "unavailable":
        pytest.skip(told["reason"])
    assert (told["status"], told.get("api")) == ("ready", frozen.api), told
    assert Path(told["file"]).is_relative_to(tmp_path)  # and not what is installed
    for when in ("now", "then"):
        assert tuple(told[when]) == frozen.networks
        for name, found in told[when].items():
            assert found["deviation"] <= frozen.tolerance, (when, name)
            (delegate,) = found["delegates"]
            assert delegate["maker"] == [f"delegatekit-{frozen.backend}", "0.1.0", frozen.api]
            # The hook is there since 2.2.
            unknown = f"backend {frozen.backend} (delegatekit-{frozen.backend} 0.1.0) does not list the operators"
            assert delegate["operators"] or delegate["unknown"].startswith(unknown)
            assert bool(delegate["operators"]) == (ApiVersion.parse(frozen.api) >= ApiVersion(2, 2))


@each_frozen
def test_todays_plugin_runs_a_file_of_then(frozen: Frozen, from_source: Callable[[Path], Any]) -> None:
    with from_source(ROOT / frozen.package) if frozen.package.startswith("examples") else nullcontext():
        info = delegatekit.backends()[frozen.backend]
        assert info.usable, info.reason
        for name in frozen.networks:
            with torch.no_grad():
                assert deviation(frozen.folder / f"{name}.pte", frozen.backend, name) <= frozen.tolerance


@pytest.mark.parametrize(
    ("hook", "old", "new"),
    [("create_partitioner", "options", "settings"), ("preprocess", "partition", "part")],
)
def test_a_renamed_argument_turns_the_matrix_red(hook: str, old: str, new: str, tmp_path: Path) -> None:
    (demo,) = (frozen for frozen in FROZEN if frozen.backend == "demo")
    paths = [shutil.copytree(ROOT / "plugin_api" / "src", tmp_path / "renamed")]
    hooks = tmp_path / "renamed" / "delegatekit_api" / "_hooks.py"
    text = hooks.read_text("utf-8")
    before, after = f"def {hook}(self, {old}: ", f"def {hook}(self, {new}: "
    assert text.count(before) == 1
    hooks.write_text(text.replace(before, after), "utf-8")
    told = meet(demo, tmp_path / "site", [*map(str, paths), *sources(ROOT)])
    assert told["status"] == "broken"
    assert hook in told["reason"] and old in told["reason"]


def declared(package: Package) -> str:
    """The API version that a plugin of today declares, which is a literal."""
    texts = (path.read_text("utf-8") for path in package.source.rglob("plugin.py"))
    return "".join(
        ".".join(found.groups()) for text in texts if (found := re.search(r"ApiVersion\((\d+), (\d+)\)", text))
    )


MODEST = [package for package in [*packages(), *examples()] if declared(package) in LAST]


@pytest.mark.slow
@pytest.mark.parametrize("package", MODEST, ids=str)
def test_todays_plugin_works_on_the_oldest_core_that_it_declares(package: Package, tmp_path: Path) -> None:
    # With the plugin API and the toolkit of today, on which it depends; only the core is older.
    (name,) = package.backends
    frozen = next(item for item in FROZEN if item.backend == name)
    site = unpacked(wheel_of(package.folder, tmp_path), tmp_path / "site")
    try:
        with history(LAST[declared(package)]) as tree:
            paths = [str(ROOT / "plugin_api" / "src"), str(ROOT / "toolkit" / "src"), *sources(tree)]
            result = encounter("make", name, frozen.networks, site, tmp_path, paths)
    except LookupError as error:
        pytest.skip(str(error))
    assert result.returncode == 0, result.stderr
    assert all(found <= frozen.tolerance for found in json.loads(result.stdout.splitlines()[-1]).values())
    assert {path.stem for path in tmp_path.glob("*.pte")} == set(frozen.networks)


def test_every_older_minor_of_this_major_is_frozen() -> None:
    frozen = {ApiVersion.parse(item.api) for item in FROZEN}
    assert frozen == {ApiVersion(API_VERSION.major, minor) for minor in range(API_VERSION.minor)}
    assert frozen == set(map(ApiVersion.parse, LAST))
    for item in FROZEN:
        kept = {path.name for path in item.folder.iterdir()}
        assert kept == {item.wheel.name, *(f"{name}.pte" for name in item.networks)}
        assert item.wheel.stat().st_size < 150_000
