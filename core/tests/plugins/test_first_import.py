"""A new or changed plugin is imported in a separate process first; the outcome is remembered."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from delegatekit.plugins import FIRST_IMPORTS, OBSERVER_GROUP, discovery, first_import, observers, remembered
from delegatekit_api import PluginError
from delegatekit_api.observers import StageEvent
from delegatekit_toolkit.limited import Ended


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of remembered outcomes; plugins are probed first, with a short time limit."""
    monkeypatch.setenv(FIRST_IMPORTS, "on")
    monkeypatch.setenv(remembered.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr(first_import, "TIME_LIMIT", 20.0)
    return tmp_path / "cache"


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of plugins that are probed from now on, by a simulated process that survives."""
    tried: list[str] = []

    def probe(step: str, group: str, name: str, module: str, *, seconds: float) -> Ended:
        tried.append(name)
        return Ended(("null",), (), "", 0)

    monkeypatch.setattr(first_import, "probe", probe)
    return tried


def import_anew(name: str) -> str:
    """The status of a backend in a process that has not imported it."""
    discovery.refresh()
    sys.modules.pop(f"delegatekit_{name}_plugin", None)
    return discovery.look_up(name).status


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os._exit(0)", "ended the process with exit code 0"),
        ("import os, sys; print('no licence', file=sys.stderr, flush=True); os._exit(3)", "exit code 3: no licence"),
        ("import os; os.kill(os.getpid(), 11)", "crashed (SIGSEGV)"),
        ("import ctypes; ctypes.string_at(0)", "crashed (SIGSEGV)"),
        ("raise KeyboardInterrupt", "SIGINT"),
        ("import time; time.sleep(600)", "took longer than 1 s and was stopped"),
        ("while True: print('x' * 1000)", "took longer than 1 s and was stopped"),
    ],
)
def test_a_plugin_whose_import_ends_the_process_is_broken_and_disturbs_nobody(
    source: str, reason: str, cache: Path, install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "1 s" in reason:
        monkeypatch.setattr(first_import, "TIME_LIMIT", 1.0)
    install_plugin("odd", source)
    found = discovery.look_up("odd")
    assert found.status == "broken"
    assert found.reason.startswith("importing it ") and reason in found.reason
    monkeypatch.setattr(first_import, "probe", None)  # it is remembered: no second process
    discovery.refresh()
    assert reason in discovery.look_up("odd").reason
    assert "`delegatekit backends --check` tries again" in discovery.look_up("odd").reason
    with pytest.raises(PluginError, match="is broken"):
        discovery.get_backend("odd")


def test_an_observer_is_tried_first_too(cache: Path, install_plugin: Any) -> None:
    source = "import os; os._exit(3)"
    install_plugin("odd", source, group=OBSERVER_GROUP, distribution="odd")
    with pytest.warns(UserWarning, match=r"observer odd could not be loaded .*exit code 3"):
        observers.notify(StageEvent("edge", "start"))


def test_a_plugin_that_was_imported_before_costs_no_process(cache: Path, tries: list[str], install_plugin: Any) -> None:
    install_plugin("good")
    assert [import_anew("good") for _ in range(3)] == ["ready"] * 3
    assert tries == ["good"]


def test_a_file_that_changed_is_noticed_wherever_the_plugin_is_installed_from(
    cache: Path, tries: list[str], install_plugin: Any, tmp_path: Path
) -> None:
    folder = install_plugin("good")
    package = folder / "delegatekit_good_plugin"
    (package / "inner").mkdir(parents=True)
    (folder / "delegatekit_good_plugin.py").rename(package / "__init__.py")
    (package / "inner" / "deep.py").write_text("")
    import_anew("good")
    import_anew("good")
    (package / "inner" / "deep.py").write_text("x = 1")
    import_anew("good")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "more.pyc").write_bytes(b"")  # importing writes there
    import_anew("good")
    os.utime(package / "__init__.py", ns=(1, 1))
    import_anew("good")
    (info,) = folder.glob("*.dist-info")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: delegatekit-good\nVersion: 1.3\n")
    import_anew("good")
    assert tries == ["good"] * 4


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"died": 7, "state": 1, "time": 0}',
        b'{"died": "", "time": "x"}',
        b"[" * 9999,
    ],
)
def test_what_is_remembered_may_be_damaged(damage: bytes, cache: Path, tries: list[str], install_plugin: Any) -> None:
    install_plugin("good")
    import_anew("good")
    (file,) = (cache / "plugins").iterdir()
    file.write_bytes(damage)
    assert import_anew("good") == "ready"
    assert tries == ["good", "good"]
    assert json.loads(file.read_bytes())["died"] == ""


def test_a_cache_that_cannot_be_written_costs_a_process_each_time_and_nothing_more(
    cache: Path, tries: list[str], install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("good")
    cache.write_text("a file where the folder should be")
    assert [import_anew("good") for _ in range(2)] == ["ready"] * 2
    monkeypatch.setenv(remembered.CACHE, "off")
    assert import_anew("good") == "ready"
    assert tries == ["good"] * 3
    monkeypatch.setenv(FIRST_IMPORTS, "off")
    assert import_anew("good") == "ready"
    assert tries == ["good"] * 3


def test_a_plugin_that_died_is_tried_again_after_an_hour(
    cache: Path, install_plugin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_plugin("good")
    entry_point = discovery.entry_point_of("good")
    first_import.remember(entry_point, "crashed")
    assert import_anew("good") == "broken"
    now = time.time()
    tried: list[str] = []

    def probe(*arguments: str, seconds: float) -> Ended:
        tried.append(arguments[2])
        return Ended(("null",), (), "", 0)

    monkeypatch.setattr(first_import, "probe", probe)
    for later in (4000, -4000):  # the clock may have been set back
        monkeypatch.setattr(time, "time", lambda: now)
        first_import.remember(entry_point, "crashed")
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert import_anew("good") == "ready"
    assert len(tried) == 2


def test_the_cache_is_where_the_system_keeps_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(remembered.CACHE, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/not/allowed")
    assert remembered.cache_folder() == tmp_path / ".cache" / "delegatekit"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert remembered.cache_folder() == Path("/caches/delegatekit")
