"""Runs cases on a Dask cluster: a task for each case, on workers that have a resource named after the backend.

A Dask worker runs the case in a pool of one worker process of its own, so that a crash of the backend does not end it.
If it is lost nevertheless (a reboot, a pulled cable), the scheduler gives its cases to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from delegatekit_toolkit.cluster import ClusterTask, Lost, able_workers, allow_children, connected, run_tasks

from ..cases import Case, all_cases
from ..context import Context
from ..errors import InputError
from ..outcome import CaseResult, Outcome, Tally, Verdict
from ..run import BackendFacts, machine, versions
from .plan import Limits, Source
from .pool import Pool

#: Seconds to wait for the scheduler, and for the first worker that has the resource.
_PATIENCE = 30.0
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
) -> Iterator[CaseResult]:
    """Run the named cases on the cluster at `address`; yields results as they come.

    `cases` is what `source` gives. Facts about the workers go into `facts`: `backend`, `versions` and `machine`, as
    `Run` has them. Raises OptionError if `distributed` is not installed, the scheduler does not answer, or no worker
    has the resource, InputError if workers differ in the versions of what they run.
    """
    with connected(address, extra="delegatekit-conformance[cluster]", patience=_PATIENCE) as client:
        try:
            workers = able_workers(client, context.backend, address, patience=_PATIENCE)
            facts.update(_facts(client, workers, context))
            run = str(time.time_ns())
            tasks = [
                ClusterTask(
                    name, f"{run}-{name}", (run, name, context, limits, source), context.backend, cases[name].cost
                )
                for name in names
            ]
            for name, result in run_tasks(client, _run_case, tasks):
                yield _lost(cases[name], result.words) if isinstance(result, Lost) else CaseResult.from_json(result)
        finally:
            with suppress(Exception):  # the run is over; an unreachable worker has nothing to close
                client.run(_close_pools, on_error="ignore")


def _facts(client: Any, workers: Sequence[str], context: Context) -> dict[str, object]:
    found = client.run(_worker_facts, context, workers=list(workers))
    if not found:
        return {}
    (first, (facts, packages, _)), *others = found.items()
    for address, (_, theirs, _) in others:
        differ = [name for name in {*packages, *theirs} if packages.get(name) != theirs.get(name)]
        if differ:
            raise InputError(f"differs from {first} in the versions of {', '.join(sorted(differ))}", where=address)
    machines: dict[str, dict[str, None]] = {}
    for _, _, machine_facts in found.values():
        for key, value in machine_facts.items():
            machines.setdefault(key, {})[value] = None
    joined = {key: "; ".join(values) for key, values in machines.items()}
    return {"backend": facts, "versions": packages, "machine": joined | {"workers": str(len(workers))}}


def _worker_facts(context: Context) -> tuple[BackendFacts, dict[str, str], dict[str, str]]:
    facts = BackendFacts.of(context.backend, context.options)
    return facts, versions(facts.distribution), machine()


def _run_case(run: str, name: str, context: Context, limits: Limits, source: Source) -> dict[str, Any]:
    """Run one case in this Dask worker's pool."""
    with _lock:
        pool = _pools.get(run)
        if pool is None:
            allow_children()  # each has a guard that ends it with this process
            pool = _pools[run] = Pool(context, limits=limits, source=source)
    return pool.run_case(name).to_json()


def _close_pools() -> None:
    with _lock:
        while _pools:
            _pools.popitem()[1].close()


def _lost(case: Case, words: str) -> CaseResult:
    tally = Tally(case.name, case.tags)
    tally.add(Outcome(Verdict.CRASH, f"the Dask workers that ran it were lost: {words}", blame="backend"))
    return tally.result()
