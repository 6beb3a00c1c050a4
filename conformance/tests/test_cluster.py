"""Cases run on a Dask cluster, and a lost worker loses no verdict."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from delegatekit_api import DelegateKitError
from delegatekit_conformance.context import PROFILES, Context
from delegatekit_conformance.outcome import Verdict
from delegatekit_conformance.runner import Limits
from delegatekit_conformance.runner.cluster import run_on_cluster

Client = pytest.importorskip("distributed").Client

CONTEXT = Context("seeded", replace(PROFILES["quick"], shrink_seconds=2.0), timeout=20.0)


@pytest.fixture
def scheduler(toy_folder: Path, install_seeded: Callable[..., None], tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler without workers."""
    install_seeded()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"tcp://127.0.0.1:{port}"
    started = dask("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard", folder=tmp_path)
    yield address
    stop(started)


@pytest.fixture
def workers(scheduler: str, tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two workers that can run the backend: one under a nanny, as by default, and one without."""
    arguments = ("worker", scheduler, "--nthreads", "1", "--resources", "seeded=1", "--no-dashboard")
    started = [dask(*arguments, folder=tmp_path), dask(*arguments, "--no-nanny", folder=tmp_path)]
    with Client(scheduler, timeout=60, set_as_default=False) as client:  # type: ignore[no-untyped-call]
        client.wait_for_workers(2, timeout=60)  # type: ignore[no-untyped-call]
    yield started
    for process in started:
        stop(process)


def dask(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "dask", *arguments]
    with (folder / "dask.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def held(folder: Path) -> set[str]:
    """The processes in the middle of a case: those that began its number 1, and stay there until a worker is lost."""
    return {process for process, number in begun(folder) if number == "1"}


def begun(folder: Path) -> list[tuple[str, str]]:
    """The process and the number of each try of an example that is held."""
    path = folder / "begun"
    lines = path.read_text().split() if path.exists() else []
    return [(process, number) for process, _, number in (line.partition(":") for line in lines)]


@pytest.mark.slow
def test_a_lost_worker_loses_no_verdict(
    scheduler: str, workers: list[subprocess.Popen[bytes]], toy_folder: Path
) -> None:
    from toy_cases import cases  # type: ignore[import-not-found]

    all_cases = cases(CONTEXT)
    names = [name for name in all_cases if name.startswith("held/")] + ["toys/abort", "toys/mismatch"]
    facts: dict[str, object] = {}
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(list, run_on_cluster(scheduler, CONTEXT, names, all_cases, Limits(), facts, cases))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and len(held(toy_folder)) < 2:
            time.sleep(0.02)
        both = len(held(toy_folder)) == 2
        workers[1].kill()
        workers[1].wait()
        (toy_folder / "lost").touch()
        results = running.result()
    assert both, "each worker was in the middle of a case"
    assert sorted(result.case for result in results) == sorted(names)
    counts = {result.case: result.counts for result in results}
    assert counts.pop("toys/abort") == {Verdict.DELEGATED: 4, Verdict.CRASH: 1}
    assert counts.pop("toys/mismatch") == {Verdict.DELEGATED: 2, Verdict.MISMATCH: 3}
    assert all(found == {Verdict.DELEGATED: 4} for found in counts.values()), counts
    assert len(begun(toy_folder)) > 6 * 4, "another began again the case of the killed worker"
    assert facts["versions"]["delegatekit-seeded"] == "1.2"  # type: ignore[index]
    assert facts["machine"]["cores"]  # type: ignore[index]


def test_a_cluster_that_cannot_help_is_told_so(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegatekit_conformance.runner.cluster._PATIENCE", 5.0)
    with pytest.raises(DelegateKitError, match="none of its 0 workers has the resource seeded"):
        next(run_on_cluster(scheduler, CONTEXT, [], {}, Limits(), {}))
    with pytest.raises(DelegateKitError, match="scheduler does not answer"):
        next(run_on_cluster("tcp://127.0.0.1:9", CONTEXT, [], {}, Limits(), {}))
