"""Whatever an installed plugin does, every command works, and names the culprit in at most one line."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import handmade
import pytest
import torch
from hostile import DESCRIBED, KINDS, Hostile

import delegatekit
from delegatekit import cli as command_line
from delegatekit.cli import console
from delegatekit.plugins import ALLOW_LIST, discovery

GOOD = """
from delegatekit_api import *
from delegatekit_api.devices import TargetInfo

class Nothing:
    def keep_operators(self): return ()
    def check(self, call): return Verdict.no("it takes nothing")
    def propose(self, program): return None

class Runtime:
    def is_available(self): return Availability(True)
    def init(self, payload): pass
    def execute(self, handle, inputs, outputs): outputs[0].copy_(inputs[0])
    def destroy(self, handle): pass

@hookimpl
def describe_backend():
    return BackendDescription("good", "Test", "delegatekit-good", "1.2", "x")

@hookimpl
def create_partitioner(options): return Nothing()

@hookimpl
def create_runtime(): return Runtime()

@hookimpl
def targets(): return [TargetInfo("chip", "a chip")]
"""

#: The arguments of commands. The first word of a key is the command; all but --help print JSON.
COMMANDS = {
    "backends": ["backends", "--json"],
    "targets": ["targets", "--json"],
    "schemes": ["schemes", "--json"],
    "inspect": ["inspect", "model.pte", "--json"],
    "run": ["run", "delegate.pte", "--json"],
    "lower": ["lower", "tiny.pt2", "-b", "good", "-o", "out.pte", "--json"],
    "explain": ["explain", "tiny.pt2", "-b", "good", "--json"],
}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, and with files of our own operators and of a delegate that names no owner."""
    folder = tmp_path_factory.mktemp("files")
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    torch.export.save(program, folder / "tiny.pt2")
    (folder / "model.pte").write_bytes(delegatekit.lower(program, backends=[]).buffer)
    (folder / "delegate.pte").write_bytes(handmade.delegate_program())
    return folder


Call = Callable[..., Ended]


@pytest.fixture
def call(
    files: Path, install_plugin: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Call]:
    """Calls a command in this process; the backend "good" is installed, all others but "odd" are disabled."""
    install_plugin("good", GOOD)
    monkeypatch.chdir(files)
    monkeypatch.setenv(ALLOW_LIST, "good,odd")
    for printer in (console.out, console.err):
        monkeypatch.setattr(printer, "_width", 1000)

    def called(*arguments: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["delegatekit", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            command_line.main()
        printed = capsys.readouterr()
        return Ended(int(end.value.code or 0), printed.out, printed.err)

    yield called


def install(kind: Hostile, install_plugin: Any) -> None:
    folder = install_plugin("odd", kind.source, group=kind.group)
    (info,) = folder.glob("*.dist-info")
    if kind.entry_points is not None:
        (info / "entry_points.txt").write_bytes(kind.entry_points)
    if kind.metadata is not None:
        (info / "METADATA").write_bytes(kind.metadata)
    discovery.refresh()


def about_odd(text: str) -> list[str]:
    return [line for line in text.splitlines() if "odd" in line]


@pytest.mark.sweep
@pytest.mark.parametrize("name", KINDS)
def test_every_command_does_its_work_beside_a_hostile_plugin(name: str, call: Call, install_plugin: Any) -> None:
    kind = KINDS[name]
    install(kind, install_plugin)
    for command, arguments in COMMANDS.items():
        discovery.refresh()
        sys.modules.pop("delegatekit_odd_plugin", None)
        ended = call(*arguments)
        assert ended.code == 0, f"{command}: {ended.err}"
        assert "Traceback" not in ended.err
        json.loads(ended.out)
        told = about_odd(ended.err.replace("printed", ""))
        assert len(told) <= 1, f"{command}: {told}"
        assert told or command not in kind.told_by, f"{command} does not name it"
    help_ = call("--help")
    assert help_.code == 0 and "lower" in help_.out and "Traceback" not in help_.err
    assert len(about_odd(help_.err)) <= 1


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.group == "delegatekit.backends"])
def test_a_hostile_backend_that_is_asked_for_gets_one_message(name: str, call: Call, install_plugin: Any) -> None:
    kind = KINDS[name]
    install(kind, install_plugin)
    for arguments in (["targets", "odd"], ["schemes", "odd"], ["explain", "tiny.pt2", "-b", "odd"]):
        ended = call(*arguments)
        # If its entry points cannot be read, there is no such backend: wrong usage.
        assert ended.code in ((2,) if "no backend 'odd' is installed" in ended.err else (0, 1)), ended.err
        assert "Traceback" not in ended.err and len(ended.err) < 2000
        lines = [line for line in ended.err.replace("printed", "").splitlines() if line]
        assert len(lines) <= 3, ended.err


def test_a_hostile_command_that_is_called_gets_one_message(call: Call, install_plugin: Any) -> None:
    for name in ("command's import raises", "command is a number", "command raises"):
        install(KINDS[name], install_plugin)
        ended = call("odd")
        assert ended.code == 1 and ended.out == "" and "Traceback" not in ended.err
        assert "odd" in ended.err or "Unreadable" in ended.err


#: Writes to stdout in every possible way, from import to the end of the interpreter.
LOUD = (
    DESCRIBED
    + """
import atexit, ctypes, os, sys, threading

def loud():
    print("loud")
    print("loud", file=sys.__stdout__, flush=True)
    os.write(1, b"loud\\n")
    libc = ctypes.CDLL(None)
    libc.puts(b"loud")
    libc.fflush(None)

loud()
threading.Thread(target=loud).start()
atexit.register(loud)

@hookimpl
def targets():
    loud()
    return []
"""
)


def test_stdout_has_results_alone_however_a_plugin_prints(tmp_path: Path, write_plugin: Any) -> None:
    folder = write_plugin(tmp_path / "site", "odd", LOUD)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        ALLOW_LIST: "odd",
    }
    for arguments in (["targets", "--json"], ["targets", "odd", "--json"]):
        command = [sys.executable, "-m", "delegatekit", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
        assert json.loads(ended.stdout) == {"odd": []}
        assert ended.stderr.count("loud") == 16


def test_a_warning_about_a_plugin_is_a_python_warning_outside_of_the_command(install_plugin: Any) -> None:
    install(KINDS["entry points of broken syntax"], install_plugin)
    with pytest.warns(UserWarning, match=r"plugins of delegatekit-odd are left out: its entry_points.txt cannot"):
        discovery.backends()
    importlib.invalidate_caches()
