"""Runs cases, each in a worker process with a time limit: a crash or a hang is a verdict, and the run goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory

from .verdicts import Outcome, Verdict

#: How much of a crashed worker's last words is kept.
_TAIL = 400


def run_cases(backend: str, names: Sequence[str], *, jobs: int = 1, timeout: float = 120.0) -> Iterator[Outcome]:
    """Run the named cases against a backend, `jobs` at a time; yields outcomes as they come.

    `timeout` is the limit of one case in seconds of wall time, process start included.
    """
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(run_isolated, backend, name, timeout) for name in names]
        for future in as_completed(futures):
            yield future.result()


def run_isolated(backend: str, name: str, timeout: float) -> Outcome:
    """Run one case in a process of its own."""
    with TemporaryDirectory(prefix="conformance-") as folder:
        path = Path(folder) / "outcome.json"
        command = [sys.executable, "-m", "delegatekit_conformance.worker", backend, name, str(path)]
        start = time.perf_counter()
        try:
            result = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(name, Verdict.TIMEOUT, f"no end after {timeout:g} s", seconds=timeout)
        seconds = time.perf_counter() - start
        if not path.is_file():
            return Outcome(name, Verdict.CRASH, _last_words(result), seconds=seconds)
        return Outcome.from_json(json.loads(path.read_text("utf-8")))


def _last_words(result: subprocess.CompletedProcess[bytes]) -> str:
    code = result.returncode
    cause = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    tail = result.stderr.decode(errors="replace").strip()[-_TAIL:]
    return f"the process ended with {cause}" + (f": {tail}" if tail else "")
