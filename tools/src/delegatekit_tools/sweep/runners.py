"""Runs the jobs of a sweep: in processes here, or on the workers of a Dask cluster."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from delegatekit_api import FormatError
from delegatekit_toolkit.cluster import ClusterTask, Lost, able_workers, connected, run_tasks
from delegatekit_toolkit.json_text import plain, read_object, to_json
from delegatekit_toolkit.limited import Processes, module
from delegatekit_toolkit.scratch import scratch

from .jobs import Job
from .material import write
from .row import Row

_WORKER: Final = "delegatekit_tools.sweep.worker"


def run_here(jobs: Sequence[Job], files: Mapping[str, bytes], seconds: float, at_a_time: int | None) -> Iterator[Row]:
    """Make the rows in processes, `jobs` at a time (by default one per CPU); yields them as they finish.

    An interrupt, or closing the iterator, ends the processes.
    """
    threads = ThreadPoolExecutor(at_a_time or os.cpu_count(), thread_name_prefix="sweep")
    with scratch() as folder:
        write(files, folder)
        maker = _Maker(folder, seconds)
        try:
            for future in as_completed([threads.submit(maker.make, job) for job in jobs]):
                yield future.result()
        finally:
            maker.stop()
            threads.shutdown(cancel_futures=True)


def run_on_cluster(jobs: Sequence[Job], files: Mapping[str, bytes], seconds: float, address: str) -> Iterator[Row]:
    """Make the rows on a cluster, each on a worker that has a resource named after its backend; yields as they finish.

    Raises OptionError as `cluster` does.
    """
    by_key = {job.key: job for job in jobs}
    run = str(time.time_ns())
    with connected(address, extra="delegatekit-tools[cluster]") as client:
        for backend in dict.fromkeys(job.backend for job in jobs):
            able_workers(client, backend, address)
        sent = client.scatter(dict(files), broadcast=True)
        tasks = [ClusterTask(job.key, f"{run}-{job.key}", (plain(job), sent, seconds), job.backend) for job in jobs]
        for key, result in run_tasks(client, make_on_worker, tasks):
            if isinstance(result, Lost):
                yield by_key[key].failed(f"the workers that ran it were lost: {result.words}")
            else:
                yield _row(by_key[key], result)


def _row(job: Job, content: Any) -> Row:
    """The row that another process made; a failed one if its answer is invalid."""
    try:
        return Row.from_json(content, "the row")
    except FormatError as error:
        return job.failed(f"its process answered what is no row: {error.where}: {error.what}")


def make_on_worker(job: Mapping[str, Any], files: Mapping[str, bytes], seconds: float) -> dict[str, Any]:
    """A row, made in a process of this worker's machine, as plain data."""
    with scratch() as folder:
        write(files, folder)
        found: dict[str, Any] = plain(_Maker(folder, seconds).make(Job(**job)))
        return found


class _Maker:
    """Makes rows, each in a process of its own; its methods may be called from several threads."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._folder = folder
        self._seconds = seconds
        self._processes = Processes()

    def make(self, job: Job) -> Row:
        """The row of a job. A process that crashes or times out gives a failed row."""
        given, row = self._folder / f"{job.key}.job", self._folder / f"{job.key}.row"
        given.write_text(to_json(job), "utf-8")
        # Temporary files of a killed backend are deleted with the folder.
        environment = {"TMPDIR": str(self._folder)}
        command = module(_WORKER, str(self._folder), str(given), str(row))
        ended = self._processes.run(command, self._seconds, environment)
        if ended is None:
            return job.failed("was not started")
        if not row.exists():
            return job.failed(f"its process {ended.failure}")
        return _row(job, read_object(row.read_bytes()))

    def stop(self) -> None:
        """End all processes, and start no others."""
        self._processes.stop()
