"""Runs functions on the workers of a Dask cluster: each task on a worker with the resource that it needs."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from delegatekit_api import OptionError

T = TypeVar("T", bound=Hashable)

#: Seconds to wait for the scheduler, and for the first worker that has a resource.
PATIENCE = 30.0
#: Seconds between two looks for results, and between two calls of what watches.
_POLL = 0.05
_WATCH = 5.0


class SchedulerGoneError(Exception):
    """The scheduler ended, and with it what it knew of the tasks."""


@dataclass(frozen=True)
class Lost:
    """The workers that ran a task were lost repeatedly: it takes whole machines down."""

    #: Dask's message.
    words: str


@dataclass(frozen=True)
class ClusterTask(Generic[T]):
    """A call of a function."""

    #: The name that its result is yielded with.
    name: T
    #: Its key in the cluster, different for each task of each run.
    key: str
    arguments: tuple[Any, ...]
    #: Only workers with this resource run the task.
    resource: str
    #: Tasks with larger values are started first.
    priority: float = 0.0
    #: The addresses of the only workers that may run it; none: all.
    workers: tuple[str, ...] = ()


@contextmanager
def connected(address: str, *, extra: str, patience: float | None = None) -> Iterator[Any]:
    """A client of the scheduler at `address`.

    `extra` is the package to install if Dask is missing ("PACKAGE[EXTRA]"). Raises OptionError if it is missing or the
    scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise OptionError(f"--scheduler needs Dask: {error}", hint=f"pip install '{extra}'") from error
    try:
        client = Client(address, timeout=PATIENCE if patience is None else patience, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise OptionError(f"the Dask scheduler does not answer: {error}", where=address) from error
    try:
        yield client
    finally:
        client.close()  # type: ignore[no-untyped-call]


def able_workers(client: Any, resource: str, address: str, *, patience: float | None = None) -> list[str]:
    """The addresses of the workers that have a resource; waits for the first. Raises OptionError if there is none."""
    deadline = time.monotonic() + (PATIENCE if patience is None else patience)
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        able = [worker for worker, info in workers.items() if (info.get("resources") or {}).get(resource)]
        if able:
            return able
        if time.monotonic() > deadline:
            raise OptionError(
                f"none of its {len(workers)} workers has the resource {resource}",
                where=address,
                hint=f"start workers with `dask worker {address} --resources {resource}=1`",
            )
        time.sleep(0.2)


def run_tasks(
    client: Any,
    function: Callable[..., Any],
    tasks: Sequence[ClusterTask[T]],
    *,
    further: list[ClusterTask[T]] | None = None,
    watch: Callable[[], Iterable[T]] = tuple,
    more: Callable[[], bool] = bool,
) -> Iterator[tuple[T, Any | Lost]]:
    """Yield the name and the result of each task, in order of completion. Raises what a task raises.

    The caller may put tasks into `further` meanwhile, also when none is left, as long as `more` is true. `watch` is
    called every few seconds; the tasks of the names that it returns are given up and yielded as `Lost`. Raises
    SchedulerGoneError if the scheduler ends.
    """
    from distributed import CancelledError, KilledWorker, as_completed

    futures: dict[Any, T] = {}
    done: Any = as_completed(loop=client.loop)  # type: ignore[no-untyped-call]
    waiting, looked = [*tasks], time.monotonic()
    while futures or waiting or further or more():
        for task in waiting:
            future = client.submit(
                function,
                *task.arguments,
                resources={task.resource: 1},
                workers=task.workers or None,
                pure=False,
                priority=task.priority,
                key=task.key,
            )
            futures[future] = task.name
            done.add(future)
        waiting = []
        if not done.has_ready():
            if client.status != "running":
                raise SchedulerGoneError("the connection to the Dask scheduler broke")
            time.sleep(_POLL)
            if time.monotonic() - looked > _WATCH:
                given_up, looked = {*watch()}, time.monotonic()
                for future in [future for future, name in futures.items() if name in given_up]:
                    name = futures.pop(future)
                    future.cancel()
                    yield name, Lost("no worker that may run it is left")
        else:
            future = next(done)
            if future not in futures:  # given up
                continue
            try:
                failure = future.exception()
            except CancelledError as error:
                raise SchedulerGoneError("the Dask scheduler has lost its tasks") from error
            name = futures.pop(future)
            if failure is None:
                yield name, future.result()
            elif isinstance(failure, KilledWorker):
                yield name, Lost(str(failure))
            else:
                raise failure
            future.release()
        if further:
            waiting, further[:] = [*further], []


def allow_children() -> None:
    """Let this process start child processes, if it is a Dask worker.

    Dask's nanny marks its workers as daemons, and multiprocessing forbids daemons to have children, which would outlive
    them: the caller ensures that its own do not.
    """
    config: dict[str, Any] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    config.pop("daemon", None)
