"""Runs cases, each in a worker process with a time limit: a crash or a hang is a verdict, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from .verdicts import Outcome, Verdict

#: How many bytes of a crashed worker's last words are kept.
_TAIL = 400
#: How often a running worker is looked at, in seconds.
_POLL = 0.2
#: How long to wait for the rest of stderr, in seconds: a process that the worker left behind may hold the pipe open.
_DRAIN = 2.0


def run_cases(
    backend: str, names: Sequence[str], *, jobs: int = 1, timeout: float = 120.0
) -> Generator[Outcome, None, None]:
    """Run the named cases against a backend, `jobs` at a time; yields outcomes as they come.

    `timeout` is the limit of one case in seconds of wall time, process start included. Closing the iterator, or an
    interrupt, ends the workers that still run.
    """
    stop = threading.Event()
    pool = ThreadPoolExecutor(jobs)
    try:
        futures = [pool.submit(run_isolated, backend, name, timeout, stop) for name in names]
        for future in as_completed(futures):
            yield future.result()
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)


def run_isolated(backend: str, name: str, timeout: float, stop: threading.Event | None = None) -> Outcome:
    """Run one case in a process of its own. The process is ended when the time is up or `stop` is set."""
    with TemporaryDirectory(prefix="conformance-") as folder:
        path = Path(folder) / "outcome.json"
        start = time.perf_counter()
        # Its own process group: compilers that the backend started end with it. What it prints on stdout is noise.
        process = subprocess.Popen(
            _command(backend, name, path),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stderr is not None
        words = _LastWords(process.stderr)
        in_time = _wait(process, start + timeout, stop)
        seconds = time.perf_counter() - start
        if not in_time:
            return Outcome(name, Verdict.TIMEOUT, f"no end after {timeout:g} s", seconds=seconds)
        if process.returncode != 0 or not path.is_file():
            when = " after the result was written" if path.is_file() else ""
            detail = f"the process ended with {_cause(process.returncode)}{when}{words.text()}"
            return Outcome(name, Verdict.CRASH, detail, seconds=seconds)
        outcome = Outcome.from_json(json.loads(path.read_text("utf-8")))
        return replace(outcome, seconds=seconds)


def _command(backend: str, name: str, path: Path) -> list[str]:
    return [sys.executable, "-m", "delegatekit_conformance.worker", backend, name, str(path)]


def _wait(process: subprocess.Popen[bytes], deadline: float, stop: threading.Event | None) -> bool:
    """Whether the process ended by itself before the deadline; otherwise it is killed with its group."""
    while True:
        try:
            process.wait(_POLL)
        except subprocess.TimeoutExpired:
            if time.perf_counter() < deadline and not (stop is not None and stop.is_set()):
                continue
            _kill(process)
            return False
        return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        # The process has not been waited for, so its id, which is also the group's, is still its own.
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def _cause(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # real-time signals have no name
        return f"signal {-code}"


class _LastWords:
    """Reads a stream in the background, however much comes, and keeps its end."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._tail = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream as stream:
            while chunk := os.read(stream.fileno(), 65536):
                self._tail = (self._tail + chunk)[-_TAIL:]

    def text(self) -> str:
        """ ": " and the last words, or nothing."""
        self._thread.join(_DRAIN)
        tail = self._tail.decode(errors="replace").strip()
        return f": {tail}" if tail else ""
