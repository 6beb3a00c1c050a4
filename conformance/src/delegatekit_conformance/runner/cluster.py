"""Runs cases on a Dask cluster: a task for each case, on workers that have a resource named after the backend.

A Dask worker runs the case in a pool of one worker process of its own, so that a crash of the backend does not end it.
If it is lost nevertheless (a reboot, a pulled cable), the scheduler gives its cases to another. Where a worker's
runtime is on a board, `boards` judges between the boards.
"""

from __future__ import annotations

import time
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
    this_worker,
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
        self._further: list[ClusterTask[str]] = []
        #: The tasks that only some workers may run.
        self._bound: dict[str, tuple[str, ...]] = {}
        self.boards = Boards(boards)
        self._able: set[str] = set()
        #: When (of `time.monotonic`) boards were put away, and when a case began to wait for one.
        self._away_since: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def results(self, names: Sequence[str]) -> Iterator[CaseResult]:
        unrun = 0
        tasks = [self._task(name) for name in names]
        for name, result in run_tasks(self._client, _run_case, tasks, further=self._further, watch=self._watch):
            found = self._judged(self._cases[name], result)
            if found is None:
                unrun += 1
            elif isinstance(found, CaseResult):
                yield found
        if unrun:
            away = "; ".join(f"{key}: {told}" for key, told in self.boards.told().items())
            raise NoBoardError(f"no board is left for {unrun} cases: {away}")

    def _judged(self, case: Case, result: Any) -> CaseResult | Again | None:
        """The case's result; None if no board tried it and none is left."""
        if isinstance(result, Lost):
            if not self.boards.names:
                return _lost(case, result.words)
            again = self.boards.settle(case, final=False)
            if isinstance(again, Again) and self._able.intersection(again.boards):
                self._further.append(self._task(case.name, again.boards))
                return again
            return self.boards.settle(case, final=True)
        board, name, away, values = result
        if not name:
            return CaseResult.from_json(values)
        self.boards.join(board, name)
        before = {*self.boards.quarantined}
        found = self.boards.take(case, Attempt(board, CaseResult.from_json(values), away))
        for key in {*self.boards.quarantined} - before:
            self._note(f"board {self.boards.names[key]} gets no more cases: {self.boards.quarantined[key]}")
            self._away_since[key] = time.monotonic()
            self._give(key, 0)
        if isinstance(found, Again):
            self._further.append(self._task(case.name, found.boards))
        return found

    def _task(self, name: str, workers: tuple[str, ...] = ()) -> ClusterTask[str]:
        self._count += 1
        self._bound.pop(name, None)
        if workers:
            self._bound[name] = workers
        arguments = (self._run, name, self._context, self._limits, self._source)
        key = f"{self._run}-{self._count}-{name}"
        return ClusterTask(name, key, arguments, self._resource, self._cases[name].cost, workers)

    def _give(self, worker: str, amount: int) -> None:
        """Let the scheduler give cases to a worker, or none."""
        with suppress(Exception):  # a worker that is gone gets none
            self._client.run(_set_resource, self._resource, amount, workers=[worker], on_error="ignore")

    def _watch(self) -> Iterator[str]:
        """Look after boards that were away; names the cases that no board may run any more."""
        if not self.boards.names:
            return
        for key in sorted(self.boards.absent):
            if time.monotonic() - self._away_since[key] < _ABSENCE:
                continue
            found: Any = {}
            with suppress(Exception):
                found = self._client.run(_away, self._context.backend, workers=[key], on_error="ignore")
            if found.get(key) == "" and self.boards.returned(key):
                self._note(f"board {self.boards.names[key]} answers again")
                self._give(key, 1)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        self._able = {key for key, info in workers.items() if (info.get("resources") or {}).get(self._resource)}
        now = time.monotonic()
        for name in self._cases:
            bound = self._bound.get(name, tuple(self._able))
            if self._able.intersection(bound):
                self._waits.pop(name, None)
            elif now - self._waits.setdefault(name, now) > (_ALONE if self.boards.absent else 0.0):
                yield name


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


async def _set_resource(name: str, amount: int, dask_worker: Any = None) -> None:
    await dask_worker.set_resources(**{name: amount})


def _run_case(
    run: str, name: str, context: Context, limits: Limits, source: Source
) -> tuple[str, str, str, dict[str, Any]]:
    """Run one case in this Dask worker's pool.

    Returns the worker's address, the name of its board ("" without one), why the board is out of reach after the case,
    and the result.
    """
    with _lock:
        pool = _pools.get(run)
        if pool is None:
            allow_children()  # each has a guard that ends it with this process
            pool = _pools[run] = Pool(context, limits=limits, source=source)
    result = pool.run_case(name)
    if address_of(context.backend) is None:
        return "", "", "", result.to_json()
    away = next((item.detail.splitlines()[0] for item in result.faults if _OUT_OF_REACH in item.detail), "")
    if not away and Verdict.UNAVAILABLE in result.counts:
        away = _away(context.backend) or "its runtime was not available"
    elif not away and result.verdict.is_fault:
        away = _away(context.backend)
    return *this_worker(), away, result.to_json()


def _close_pools() -> None:
    with _lock:
        while _pools:
            _pools.popitem()[1].close()


def _lost(case: Case, words: str) -> CaseResult:
    tally = Tally(case.name, case.tags)
    tally.add(Outcome(Verdict.CRASH, f"the Dask workers that ran it were lost: {words}", blame="backend"))
    return tally.result()
