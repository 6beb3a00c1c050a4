"""Conformance on boards behind a Dask scheduler: one hangs, one reboots, one lies; and a scheduler that ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from packages import ROOT

from delegatekit_conformance import Session, Settings
from delegatekit_conformance.outcome import CaseResult
from delegatekit_conformance.session import Listener

pytest.importorskip("distributed")

BOARD = ROOT / "integrations" / "lab" / "tests" / "faulty_board.py"
#: What the boards' faults are, and the call from which on they have them.
FAULTS = {"hanging": ("hang", 3), "rebooting": ("reboot", 3), "lying": ("lie", 0)}
SELECTED = tuple(f"operators/aten.{name}.*/float32" for name in ("abs", "exp", "neg", "relu", "tanh"))

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts processes, which are ended with the test."""
    running: list[subprocess.Popen[bytes]] = []

    def started(*command: object, **environment: str) -> subprocess.Popen[bytes]:
        with (tmp_path / "processes.log").open("ab") as log:
            env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DELEGATEKIT_LAB_WAIT": "20", **environment}
            words = [sys.executable, *map(str, command)]
            running.append(subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True))
        return running[-1]

    yield started
    for process in reversed(running):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in running:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_ports(number: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [item.getsockname()[1] for item in taken]
    for item in taken:
        item.close()
    return ports


def listens(port: int, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"nothing listens at {port}")


class Notes(Listener):
    """Keeps what a run says, and does something after some results."""

    def __init__(self, after: int = 0, act: Callable[[], None] = lambda: None) -> None:
        self.texts: list[str] = []
        self._count, self._after, self._act = 0, after, act

    def note(self, text: str) -> None:
        self.texts.append(text)
        print(text)

    def result(self, result: CaseResult) -> None:
        self._count += 1
        if self._count == self._after:
            self._act()


def laboratory(start: Start, folder: Path, port: int, faults: dict[str, tuple[str, int]]) -> None:
    """A scheduler, and boards with a worker each; a board that ends is started again, as a rebooted one is."""
    start("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    places = dict(zip(faults, free_ports(len(faults)), strict=True))
    for name, place in places.items():
        board = (BOARD, "reference", place, name, *faults[name], folder)

        def again(board: tuple[object, ...] = board) -> None:
            while start(*board).wait() == 1:
                time.sleep(3)

        threading.Thread(target=again, daemon=True).start()
    for name, place in places.items():
        listens(place)
        command = ("-m", "delegatekit", "lab", "worker", f"tcp://127.0.0.1:{port}")
        start(*command, "--board", f"reference=tcp://127.0.0.1:{place}", "--name", name, "--kind", "toy")


def verdicts(results: tuple[CaseResult, ...]) -> dict[str, Any]:
    return {result.case: dict(result.counts) for result in results}


@pytest.mark.slow
def test_three_boards_with_three_faults_give_right_results(start: Start, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    laboratory(start, tmp_path, port, FAULTS)
    address = f"tcp://127.0.0.1:{port}"
    listens(port)
    notes = Notes()
    device = {"kind": "toy"}
    settings = Settings("reference", select=SELECTED, profile="quick", scheduler=address, device=device, stock=False)
    wait_for_workers(address, 3)
    run = Session(settings, listener=notes).run()
    right = Session(Settings("reference", select=SELECTED, profile="quick", stock=False)).run()
    assert verdicts(run.results) == verdicts(right.results)
    assert not run.faults
    assert "in quarantine" in run.device["board lying"]
    assert "wrong result" in run.device["board lying"]
    assert "does not answer" in run.device["board hanging"]
    assert "out of reach" in run.device["board rebooting"]
    told = {line.partition(":")[0] for result in run.results for line in result.boards}
    assert told == set(FAULTS)
    assert all(result.boards[0].partition(": ")[2] == result.verdict.value for result in run.results)
    assert [text for text in notes.texts if text.startswith("board lying gets no more cases")]


@pytest.mark.slow
def test_results_survive_the_end_of_the_scheduler(start: Start, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    command = ("-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")
    first = start(*command)
    (place,) = free_ports(1)
    start("-m", "delegatekit", "serve-device", "-b", "reference", "--listen", f"127.0.0.1:{place}", "--name", "one")
    listens(place)
    listens(port)
    start("-m", "delegatekit", "lab", "worker", address, "--board", f"reference=tcp://127.0.0.1:{place}")
    wait_for_workers(address, 1)

    def restart() -> None:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        start(*command)

    notes, journal = Notes(2, restart), tmp_path / "cases.jsonl"
    chosen = SELECTED[:4]
    settings = Settings("reference", chosen, "quick", scheduler=address, resume=journal, stock=False)
    run = Session(settings, listener=notes).run()
    assert any("waiting for another" in text for text in notes.texts)
    assert len(run.results) == len(Session(settings).names)
    assert not run.faults
    assert len(journal.read_text().splitlines()) == 1 + len(run.results)
    assert len({result.case for result in run.results}) == len(run.results)


def wait_for_workers(address: str, number: int) -> None:
    from distributed import Client

    with Client(address, timeout=120, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        client.wait_for_workers(number, timeout=240)  # type: ignore[no-untyped-call]
