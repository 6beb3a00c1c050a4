"""A laboratory's throughput: many boards behind one scheduler, measured with processes, and simulated.

    python benchmarks/laboratory.py --processes 50      # Dask's scheduler with so many workers, whose cases sleep
    python benchmarks/laboratory.py --boards 1000       # simulated boards, of which some hang, reboot and lie

The simulation uses the suite's own judge between boards (`runner/boards.py`) and a scheduler that needs a fixed time
for each case, the one that was measured. Neither needs a device, and the simulation needs a second of CPU time.
"""

from __future__ import annotations

import argparse
import heapq
import random
import statistics
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from delegatekit_conformance.outcome import CaseResult, Verdict
from delegatekit_conformance.runner.boards import Again, Attempt, Boards
from delegatekit_toolkit.cluster import ClusterTask, connected, run_tasks

#: Milliseconds of the scheduler for a case, if none is measured: see docs/laboratories.md.
_OVERHEAD = 5.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, help="Dask workers to start here")
    parser.add_argument("--boards", type=int, help="boards to simulate")
    parser.add_argument("--cases", type=int, default=20_000, help="cases of the simulated run")
    parser.add_argument("--seconds", type=float, default=5.0, help="median seconds of a simulated case")
    parser.add_argument("--overhead", type=float, default=_OVERHEAD, help="milliseconds of the scheduler for a case")
    given = parser.parse_args()
    if given.processes:
        measure(given.processes)
    if given.boards:
        simulate(given.boards, given.cases, given.seconds, given.overhead / 1000)


# -- measured --------------------------------------------------------------------------------------------------------


def measure(processes: int) -> None:
    """Cases that sleep on so many Dask workers, by the function that `conform --scheduler` uses."""
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "18786", "--no-dashboard"],
        stderr=subprocess.DEVNULL,
    )
    address = "tcp://127.0.0.1:18786"
    command = ["-m", "dask", "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", "b=1"]
    workers = [subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL) for _ in range(processes)]
    try:
        with connected(address, extra="distributed", patience=120) as client:
            client.wait_for_workers(processes, timeout=600)
            _round(client, 10 * processes, 0.0)
            count = 20 * processes
            busy = _round(client, count, 0.0)
            each = f"{count / busy:.0f} cases/s, {1000 * busy / count:.2f} ms each"
            print(f"{processes} workers, {count} empty cases: {each}")
            for nap in (0.1, 1.0):
                count = 8 * processes
                took = _round(client, count, nap)
                print(
                    f"{processes} workers, {count} cases of {nap:g} s: {count / took:.1f} cases/s, "
                    f"{count * nap / took / processes:.0%} of the boards' time used"
                )
    finally:
        for process in (*workers, scheduler):
            process.terminate()
        for process in (*workers, scheduler):
            process.wait()


def _round(client: Any, count: int, nap: float) -> float:
    start = time.perf_counter()
    tasks = [ClusterTask(number, f"{time.time_ns()}-{number}", (nap,), "b") for number in range(count)]
    assert sum(1 for _ in run_tasks(client, time.sleep, tasks)) == count
    return time.perf_counter() - start


# -- simulated -------------------------------------------------------------------------------------------------------


@dataclass
class _Case:
    name: str
    seconds: float
    broken: bool
    tags: dict[str, str] = field(default_factory=lambda: {"room": "operators"})


def simulate(boards: int, count: int, median: float, overhead: float) -> None:
    """A run of `count` cases on so many boards: of 100, one lies, one hangs at one of 50 cases, two reboot at times."""
    chance = random.Random(0)
    cases = [
        _Case(f"case-{number}", chance.lognormvariate(0, 1.0) * median, chance.random() < 0.01)
        for number in range(count)
    ]
    cases.sort(key=lambda case: -case.seconds)  # as a run gives them to the scheduler
    keys = [str(number) for number in range(boards)]
    kinds = {key: chance.choices(["is good", "lies", "hangs", "reboots"], [96, 1, 1, 2])[0] for key in keys}
    known = Boards(dict(zip(keys, keys, strict=True)))
    free, waiting = deque(keys), deque((case, ()) for case in cases)
    events: list[tuple[float, int, str, _Case | None]] = []
    clock = scheduler = busy = 0.0
    attempts = finished = wrong = 0
    while finished < count:
        held = []
        while waiting and free:
            case, allowed = waiting.popleft()
            key = next((item for item in free if not allowed or item in allowed), None)
            if key is None:
                held.append((case, allowed))
                continue
            free.remove(key)
            scheduler = max(scheduler, clock) + overhead
            attempts += 1
            busy += case.seconds
            heapq.heappush(events, (scheduler + case.seconds, attempts, key, case))
        waiting.extendleft(reversed(held))
        clock, _, key, case = heapq.heappop(events)
        if case is None:
            if known.returned(key):
                free.append(key)
            continue
        verdict, away = _outcome(kinds[key], case, chance)
        result = CaseResult(case.name, case.tags, {verdict: 1}, (), (), (), case.seconds, 0, 0, None, ())
        found = known.take(case, Attempt(key, result, away))  # type: ignore[arg-type]
        if key in known.absent:
            heapq.heappush(events, (clock + 60.0, -attempts, key, None))
        elif key not in known.quarantined:
            free.append(key)
        free = deque(item for item in free if item not in known.quarantined)
        if isinstance(found, Again):
            waiting.appendleft((case, frozenset(found.boards)))
        else:
            finished += 1
            if found.verdict.is_fault is not case.broken:
                wrong += 1
                tried = ", ".join(f"{line} (it {kinds[line.partition(':')[0]]})" for line in found.boards)
                print(f"{case.name}, {'faulty' if case.broken else 'right'} in truth: {tried}")
    ideal = sum(case.seconds for case in cases) / boards
    liars = [key for key in keys if kinds[key] == "lies"]
    mean = statistics.mean(case.seconds for case in cases)
    caught = sum(key in known.quarantined for key in liars)
    print(f"{boards} boards ({sum(kind != 'is good' for kind in kinds.values())} with faults), {count} cases:")
    print(f"  {clock / 60:.1f} minutes, {count / clock:.1f} cases/s; {ideal / 60:.1f} minutes without any waiting")
    print(f"  {busy / clock / boards:.0%} of the boards' time used, {attempts - count} tries more than cases")
    print(f"  {wrong} wrong results; {len(known.quarantined)} boards in quarantine, {caught} of {len(liars)} that lie")
    print(f"  the scheduler is busy for {attempts * overhead / clock:.0%} of the time")
    print(f"  it gives {1 / overhead:.0f} cases/s at most, which keeps {mean / overhead:.0f} boards busy")


def _outcome(kind: str, case: _Case, chance: random.Random) -> tuple[Verdict, str]:
    right = Verdict.MISMATCH if case.broken else Verdict.DELEGATED
    if kind == "lies":
        return Verdict.MISMATCH, ""
    if kind == "hangs" and chance.random() < 0.02:
        return Verdict.TIMEOUT, ""
    if kind == "reboots" and chance.random() < 0.02:
        return Verdict.RUN_ERROR, "rebooted"
    return right, ""


if __name__ == "__main__":
    main()
