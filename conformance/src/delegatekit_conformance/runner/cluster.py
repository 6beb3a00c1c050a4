"""Runs cases on a Dask cluster: a task for each case, on workers that have a resource named after the backend.

A Dask worker runs the case in a pool of one worker process of its own, so that a crash of the backend does not end it.
If it is lost nevertheless (a reboot, a pulled cable), the scheduler gives its cases to another. Where a worker's
runtime is on a board, `boards` judges between the boards.
"""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from delegatekit.plugins import address_of, get_backend
from delegatekit_toolkit.cluster import (
    ClusterTask,
    Lost,
    SchedulerGoneError,
    able_workers,
    allow_children,
    connected,
    run_tasks,
)

from ..cases import Case, all_cases
from ..context import Context
from ..errors import InputError
from ..outcome import CaseResult, Outcome, Tally, Verdict
from ..run import BackendFacts, machine, versions
from .boards import Again, Attempt, Boards, NoBoardError
from .plan import Limits, Source
from .pool import Pool

#: Seconds to wait for the scheduler, and for the first worker that has the resource.
_PATIENCE = 30.0
#: Seconds to wait for another scheduler after one has ended, and for a board when none is left.
_RETURN = 300.0
_ALONE = 180.0
#: Seconds until a board that was out of reach is asked again.
_ABSENCE = 20.0
#: What errors say whose cause is the way to a board, or its end.
_OUT_OF_REACH = "out of reach"
#: The pools of this process, if it is a Dask worker: one for each run.
_pools: dict[str, Pool] = {}
_lock = Lock()


def run_on_cluster(
    address: str,
    context: Context,
    names: Sequence[str],
    cases: Mapping[str, Case],
    limits: Limits,
    facts: MutableMapping[str, object],
    source: Source = all_cases,
    note: Callable[[str], None] = lambda text: None,
    kind: str = "",
) -> Iterator[CaseResult]:
    """Run the named cases on the cluster at `address`; yields results as they come.

    `cases` is what `source` gives. Facts about the workers go into `facts`: `backend`, `versions` and `machine`, as
    `Run` has them, and `device`: what each board did. With a `kind` of device, workers need the resource "NAME.KIND".
    If the scheduler ends, the cases that are not finished are given to its successor at the same address. Raises
    OptionError if `distributed` is not installed, the scheduler does not answer, or no worker has the resource,
    InputError if workers differ in the versions of what they run, and NoBoardError if no board is left.
    """
    left, resource = dict.fromkeys(names), f"{context.backend}.{kind}" if kind else context.backend
    patience = _PATIENCE
    while True:
        try:
            with connected(address, extra="delegatekit-conformance[cluster]", patience=patience) as client:
                try:
                    workers = able_workers(client, resource, address, patience=patience)
                    told = _facts(client, workers, context)
                    facts.update({key: value for key, value in told.items() if key != "boards"})
                    run = _Run(client, resource, context, cases, limits, source, told["boards"], note)
                    for result in run.results([*left]):
                        del left[result.case]
                        facts["device"] = run.boards.told()
                        yield result
                    return
                finally:
                    with suppress(Exception):  # the run is over; an unreachable worker has nothing to close
                        client.run(_close_pools, on_error="ignore")
        except SchedulerGoneError as gone:
            note(f"{gone}: waiting for another at {address}, for {len(left)} cases")
            patience = _RETURN


class _Run:
    """The cases of a run on one scheduler."""

    def __init__(
        self,
        client: Any,
        resource: str,
        context: Context,
        cases: Mapping[str, Case],
        limits: Limits,
        source: Source,
        boards: Mapping[str, str],
        note: Callable[[str], None],
    ) -> None:
        self._client, self._context, self._cases, self._limits, self._source = client, context, cases, limits, source
        self._note, self._resource = note, resource
        self._run = str(time.time_ns())
        self._count = 0
        self.boards = Boards(boards)
        #: For `run_tasks`; the cases that no board has tried, the long ones first; and those that others are to try.
        self._further: list[ClusterTask[str]] = []
        self._queue: deque[str] = deque()
        self._again: list[str] = []
        self._running: dict[str, str] = {}
        self._settled: list[CaseResult] = []
        #: When (of `time.monotonic`) boards were put away, and when the last was at work.
        self._away_since: dict[str, float] = {}
        self._busy = time.monotonic()

    def results(self, names: Sequence[str]) -> Iterator[CaseResult]:
        """The results as they come. Raises NoBoardError."""
        if self.boards.names:
            yield from self._on_boards(names)
            return
        for name, result in run_tasks(self._client, _run_case, [self._task(name) for name in names]):
            if isinstance(result, Lost):
                yield _lost(self._cases[name], result.words)
            else:
                yield CaseResult.from_json(result[-1])

    def _on_boards(self, names: Sequence[str]) -> Iterator[CaseResult]:
        """Give each board one case at a time: Dask would leave cases with a worker whose board is gone."""
        self._queue.extend(sorted(names, key=lambda name: -self._cases[name].cost))
        self._dispatch()
        for name, result in run_tasks(
            self._client, _run_case, [], further=self._further, watch=self._watch, more=self._more
        ):
            board = next(key for key, case in self._running.items() if case == name)
            del self._running[board]
            if isinstance(result, Lost):
                attempt = Attempt(board, None, "its Dask worker is gone")
            else:
                attempt = Attempt(board, CaseResult.from_json(result[-1]), result[-2])
            before = {*self.boards.quarantined}
            self._take(name, self.boards.take(self._cases[name], attempt))
            for key in {*self.boards.quarantined} - before:
                self._away_since[key] = time.monotonic()
                self._note(f"board {self.boards.names[key]} gets no more cases: {self.boards.quarantined[key]}")
            self._dispatch()
            while self._settled:
                yield self._settled.pop(0)
        last = [self.boards.settle(self._cases[name], final=True) for name in self._again]
        yield from [*self._settled, *(result for result in last if isinstance(result, CaseResult))]
        unrun = len(self._queue) + sum(not isinstance(result, CaseResult) for result in last)
        if unrun:
            told = "; ".join(f"{name}: {what}" for name, what in self.boards.told().items())
            raise NoBoardError(f"no board is left for {unrun} cases: {told}")

    def _take(self, name: str, found: CaseResult | Again | None) -> None:
        if isinstance(found, CaseResult):
            self._settled.append(found)
        else:
            self._again.append(name)

    def _dispatch(self) -> None:
        """Give cases to boards without one."""
        waiting, self._again = self._again, []
        for name in waiting:
            found = self.boards.settle(self._cases[name], final=False)
            boards = found.boards if isinstance(found, Again) else ()
            free = next((key for key in boards if key in self.boards.trusted and key not in self._running), None)
            if free is None:
                self._take(name, found)
            else:
                self._give(free, name)
        for board in self.boards.trusted:
            if board not in self._running and self._queue:
                self._give(board, self._queue.popleft())
        if self._running:
            self._busy = time.monotonic()

    def _give(self, board: str, name: str) -> None:
        self._running[board] = name
        self._further.append(self._task(name, (board,)))

    def _task(self, name: str, workers: tuple[str, ...] = ()) -> ClusterTask[str]:
        self._count += 1
        arguments = (self._run, name, self._context, self._limits, self._source)
        key = f"{self._run}-{self._count}-{name}"
        return ClusterTask(name, key, arguments, self._resource, self._cases[name].cost, workers)

    def _more(self) -> bool:
        """True if cases wait for boards that may come back."""
        waits = bool(self._queue or self._again)
        return waits and bool(self.boards.absent) and time.monotonic() - self._busy < _ALONE

    def _watch(self) -> Iterator[str]:
        """Look after boards that were away; names the cases whose Dask workers are gone."""
        for key in sorted(self.boards.absent):
            if time.monotonic() - self._away_since[key] > _ABSENCE:
                found: Any = {}
                with suppress(Exception):  # its worker is gone, too
                    found = self._client.run(_away, self._context.backend, workers=[key], on_error="ignore")
                if found.get(key) == "" and self.boards.returned(key):
                    self._note(f"board {self.boards.names[key]} answers again")
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        yield from [name for board, name in self._running.items() if board not in workers]
        self._dispatch()


def _facts(client: Any, workers: Sequence[str], context: Context) -> dict[str, Any]:
    found = client.run(_worker_facts, context, workers=list(workers))
    if not found:
        return {"boards": {}}
    (first, (facts, packages, _, _)), *others = found.items()
    for address, (_, theirs, _, _) in others:
        differ = [name for name in {*packages, *theirs} if packages.get(name) != theirs.get(name)]
        if differ:
            raise InputError(f"differs from {first} in the versions of {', '.join(sorted(differ))}", where=address)
    machines: dict[str, dict[str, None]] = {}
    for _, _, machine_facts, _ in found.values():
        for key, value in machine_facts.items():
            machines.setdefault(key, {})[value] = None
    joined = {key: "; ".join(values) for key, values in machines.items()}
    boards = {address: board for address, (_, _, _, board) in found.items() if board}
    return {
        "backend": facts,
        "versions": packages,
        "machine": joined | {"workers": str(len(workers))},
        "boards": boards,
    }


def _worker_facts(
    context: Context, dask_worker: Any = None
) -> tuple[BackendFacts, dict[str, str], dict[str, str], str]:
    """Facts of this Dask worker, and its name if its backend's runtime is on a board."""
    facts = BackendFacts.of(context.backend, context.options)
    board = str(dask_worker.name) if address_of(context.backend) else ""
    return facts, versions(facts.distribution), machine(), board


def _away(backend: str) -> str:
    """The reason why the board of this Dask worker is out of reach; empty: it answers."""
    found = get_backend(backend).runtime_availability()
    return "" if found.available else found.reason


def _run_case(run: str, name: str, context: Context, limits: Limits, source: Source) -> tuple[str, dict[str, Any]]:
    """Run one case in this Dask worker's pool: why its board is out of reach after that, and the result."""
    with _lock:
        pool = _pools.get(run)
        if pool is None:
            allow_children()  # each has a guard that ends it with this process
            pool = _pools[run] = Pool(context, limits=limits, source=source)
    result = pool.run_case(name)
    if address_of(context.backend) is None:
        return "", result.to_json()
    away = next((item.detail.splitlines()[0] for item in result.faults if _OUT_OF_REACH in item.detail), "")
    if not away and Verdict.UNAVAILABLE in result.counts:
        away = _away(context.backend) or "its runtime was not available"
    elif not away and result.verdict.is_fault:
        away = _away(context.backend)
    return away, result.to_json()


def _close_pools() -> None:
    with _lock:
        while _pools:
            _pools.popitem()[1].close()


#: A worker that loses its scheduler ends: Python would wait for the pool's processes, which wait for work.
atexit.register(_close_pools)


def _lost(case: Case, words: str) -> CaseResult:
    tally = Tally(case.name, case.tags)
    tally.add(Outcome(Verdict.CRASH, f"the Dask workers that ran it were lost: {words}", blame="backend"))
    return tally.result()
