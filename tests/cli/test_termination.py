"""Commands that are ended from outside leave no process and no folder, at the latest at the next start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from delegatekit.cli.termination import terminable
from delegatekit_toolkit.processes import search_path
from delegatekit_toolkit.scratch import remove_abandoned

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere what begins a session of its own is not found"
)

#: A backend whose compiler keeps a file of its own, starts a process in a session of its own, and does not end.
_BACKEND = """
from delegatekit_api import *
import os, pathlib, subprocess, sys, tempfile, time

class Takes:
    def keep_operators(self): return ()
    def check(self, call): return Verdict.yes()
    def propose(self, program): return None

@hookimpl
def describe_backend():
    return BackendDescription("sleeper", "SleeperBackend", "delegatekit-sleeper", "1.2", "does not end")

@hookimpl
def create_partitioner(options): return Takes()

@hookimpl
def preprocess(partition, options):
    descriptor, _ = tempfile.mkstemp()
    os.write(descriptor, b"weights")
    below = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(1000)"], start_new_session=True)
    place = pathlib.Path(os.environ["PLACE"])
    place.with_suffix(".part").write_text(f"{os.getpid()} {os.getppid()} {below.pid}")
    place.with_suffix(".part").replace(place)
    time.sleep(1000)
"""
_MODEL = """
import torch
def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()).eval(), (torch.ones(1, 4),)
"""
_COMMANDS = {
    "lower": ["lower", "model.py:make", "-b", "sleeper", "--isolate", "-o", "model.pte"],
    "sweep": ["sweep", "model.py:make", "-b", "sleeper", "--results", "sweep.json"],
}
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
_FEW = {("lower", signal.SIGKILL), ("sweep", signal.SIGTERM)}


def wait_for(happened: Callable[[], bool], seconds: float = 300.0) -> bool:
    """True if something happens in time."""
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.05)
    return happened()


@pytest.fixture
def started(tmp_path: Path, write_plugin: Callable[..., Path]) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Starts a command in a folder of its own; returns it once its compiler is at work."""
    site = write_plugin(tmp_path / "site", "sleeper", _BACKEND)
    (tmp_path / "model.py").write_text(_MODEL)
    (tmp_path / "temporary").mkdir()
    environment = search_path() | {
        "PLACE": str(tmp_path / "place"),
        "TMPDIR": str(tmp_path / "temporary"),
        "DELEGATEKIT_CACHE": "off",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),  # PyTorch's own, which stays
    }
    environment["PYTHONPATH"] = f"{site}{os.pathsep}{environment['PYTHONPATH']}"
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "delegatekit", *_COMMANDS[name]]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment)
        processes.append(process)
        assert wait_for(lambda: (tmp_path / "place").exists() or process.poll() is not None)
        assert process.poll() is None
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, marks=() if (name, number) in _FEW else pytest.mark.slow, id=f"{name}-{number.name}")
        for name in _COMMANDS
        for number in _SIGNALS
    ],
)
def test_a_signal_leaves_neither_processes_nor_folders(
    name: str,
    number: signal.Signals,
    started: Callable[[str], subprocess.Popen[bytes]],
    tmp_path: Path,
) -> None:
    process = started(name)
    below = psutil.Process(process.pid).children(recursive=True)
    told = {int(word) for word in (tmp_path / "place").read_text().split()}
    assert told <= {item.pid for item in below}
    assert list((tmp_path / "temporary").rglob("tmp*")), "the compiler's own file"
    process.send_signal(number)
    assert process.wait(300) == (-number if number == signal.SIGKILL else 128 + number)
    assert wait_for(lambda: not any(map(psutil.Process.is_running, below)))
    if number == signal.SIGKILL:
        remove_abandoned(tmp_path / "temporary")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert not (tmp_path / "model.pte").exists()


def test_signals_that_are_ignored_stay_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_only_the_first_signal_interrupts() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGHUP)
    cleaned = False
    try:
        with pytest.raises(SystemExit) as raised, terminable():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os.kill(os.getpid(), signal.SIGHUP)
                os.kill(os.getpid(), signal.SIGTERM)
                cleaned = True
        assert cleaned and raised.value.code == 143
    finally:
        for number, handler in zip((signal.SIGTERM, signal.SIGHUP), before, strict=True):
            signal.signal(number, handler)
