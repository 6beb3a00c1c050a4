"""Runs cases in a pool of worker processes, and turns their deaths into verdicts."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from delegatekit_toolkit.processes import signal_name

from ..cases import Case, all_cases
from ..context import Context
from ..outcome import CaseResult, Outcome, Tally, Verdict
from . import work
from .fork import starter
from .idle import Idle
from .journal import Progress
from .plan import Job, Limits, Source
from .workers import ClosedError, DiedError, Worker, Workers

#: Seconds between two looks at a worker.
_POLL = 0.2
#: This many seconds after its wall time is up, a worker that did not end itself is ended.
_GRACE = 10.0
#: This many bytes of a dead worker's stderr are kept, and this many frames of its traceback.
_TAIL = 400
_FRAMES = 3
#: This many bytes of the traceback are read.
_TRACE = 1 << 20
#: Text in the frames of the thread that runs the case.
_HERE = "/work.py"
#: The signal that ends a worker which has used up its CPU time.
_OVER = getattr(signal, "SIGPROF", 0)


@dataclass(frozen=True)
class Death:
    """The end of a worker: a signal (negative), a status, or a timeout."""

    code: int | None
    late: bool = False
    #: It was ended because it had used no CPU time for long.
    slept: bool = False

    def __str__(self) -> str:
        if self.code is None or self.code >= 0:
            return f"exit status {self.code or 0}"
        return f"signal {signal_name(-self.code).removeprefix('signal ')}"


class Pool:
    """Persistent workers that run cases; a context manager. Its methods may be called from several threads."""

    def __init__(
        self,
        context: Context,
        *,
        jobs: int = 1,
        limits: Limits | None = None,
        cases: Mapping[str, Case] | None = None,
        source: Source = all_cases,
    ) -> None:
        """`jobs` cases run at a time.

        `source` gives the cases, here and in every worker: a function of a module that workers can import. `cases` is
        its result, if the caller has it already.
        """
        self.context = context
        self.cases = source(context) if cases is None else cases
        self._source = source
        self._jobs = jobs
        self._limits = limits or Limits()
        self._folder = TemporaryDirectory(prefix="conformance-")
        _quieten_tracker()
        # Nothing is written to it: workers see its end when this process has died.
        self._lifeline, self._alive = multiprocessing.Pipe(duplex=False)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._count = 0
        arguments = (context, self._limits, self._lifeline, source, dict(os.environ))
        self._workers = Workers(jobs, self._limits.recycle, starter, work.prepare, arguments)
        self._fresh = Workers(jobs, 1, starter, work.prepare, arguments)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; cases that still run are given up."""
        self._stopping.set()
        self._workers.stop()
        self._fresh.stop()
        self._alive.close()
        self._lifeline.close()
        self._folder.cleanup()

    def run(self, names: Sequence[str]) -> Iterator[CaseResult]:
        """Run the named cases, the long ones first; yields results as they come.

        Closing the iterator, or an interrupt, ends the workers; the pool is unusable afterwards.
        """
        order = sorted(names, key=lambda name: -self.cases[name].cost)
        threads = ThreadPoolExecutor(self._jobs, thread_name_prefix="case")
        try:
            for future in as_completed([threads.submit(self.run_case, name) for name in order]):
                yield future.result()
        except BaseException:
            self._stopping.set()
            raise
        finally:
            threads.shutdown(cancel_futures=True)

    def run_case(self, name: str) -> CaseResult:
        """Run one case to its end, with as many workers as needed. Raises ClosedError if the pool is closed."""
        case = self.cases[name]
        progress = Progress(self._path())
        job = Job(name, str(progress.path))
        deaths = 0
        while deaths < self._limits.crashes:
            first = len(progress.outcomes)
            death, _ = self._finish(self._workers, work.work, (replace(job, first=first),), progress)
            if death is None or progress.shrinking:
                break
            index = len(progress.outcomes)
            outcome = self._of_death(progress, death)
            if progress.open is None and index == first:
                deaths, before = deaths + 1, outcome
                continue  # it tried nothing: the next worker may do more
            if progress.open is None:
                index -= 1  # after the result of an example, before the next was begun
            if outcome.verdict is Verdict.TIMEOUT:
                outcome, died = self._once_more(replace(job, first=index, only=True), outcome)
                if not died:
                    progress.note(index, outcome, died=False)
                    continue
            deaths += 1
            progress.note(index, outcome)
            if index + 1 == progress.count and progress.complete and not _ordinary(progress):
                break
        outcomes = [progress.outcomes[index] for index in sorted(progress.outcomes)]
        if progress.failure:
            detail = f"the case cannot begin: {progress.failure}"
            outcomes.append(Outcome(Verdict.RUN_ERROR, detail, blame="backend"))
        elif not outcomes and deaths:
            detail = f"before the first example, {before.detail}"
            outcomes.append(replace(before, detail=detail, example=""))
        else:
            progress.shrunk.update(self._shrink_deaths(job, progress))
        return _result(case, outcomes, progress)

    def _once_more(self, job: Job, late: Outcome) -> tuple[Outcome, bool]:
        """Try an example that timed out again, in a separate worker: the outcome, and whether that worker died."""
        progress = Progress(self._path())
        job = replace(job, journal=str(progress.path))
        death, _ = self._finish(self._fresh, work.work, (job,), progress)
        if death is not None:
            again = self._of_death(progress, death)
            return (again if progress.open is not None else late), True
        return progress.outcomes.get(job.first, late), job.first not in progress.outcomes

    def _of_death(self, progress: Progress, death: Death) -> Outcome:
        return _of_death(progress, death, self._limits.patience)

    def _path(self) -> Path:
        with self._lock:
            self._count += 1
            return Path(self._folder.name) / f"{self._count}.jsonl"

    def _finish(
        self, workers: Workers, function: Callable[..., Any], arguments: tuple[Any, ...], progress: Progress
    ) -> tuple[Death | None, Any]:
        """Have a worker execute it; returns how the worker died, or None and what the function returned."""
        with workers.one() as worker:
            worker.call(function, *arguments)
            death = self._await(worker, progress)
            if death is not None and death.late:
                return death, None
            try:
                answer = worker.answer()
            except DiedError as error:
                self._check()
                slept = death is not None and death.slept
                return Death(error.code, slept=slept), None
            finally:
                progress.read()
            return None, answer

    def _await(self, worker: Worker, progress: Progress) -> Death | None:
        """Wait until a worker has answered, died, timed out or slept: how it is to be judged."""
        events, since = progress.events, time.monotonic()
        idle: Idle | None = None
        slept = False
        while not worker.wait(_POLL):
            self._check()
            now = time.monotonic()
            limit = progress.limit or work.PREPARATION
            if progress.read().events != events:
                events, since, idle = progress.events, now, None
            elif now - since > limit * self._limits.patience + _GRACE:
                return Death(None, late=True)
            elif _OVER and now - since > limit / 2 and progress.process and not slept:
                idle = idle or Idle(progress.process, limit / 2)
                slept = idle.look()
                if slept:  # its whole time limit is over, and nothing suggests that it will end
                    _signal(progress.process, _OVER)
        return Death(None, slept=True) if slept else None

    def _check(self) -> None:
        if self._stopping.is_set():
            raise ClosedError

    def _shrink_deaths(self, job: Job, progress: Progress) -> dict[int, Outcome]:
        """Smaller examples for the first crash and the first hang, and their scripts."""
        found: dict[int, Outcome] = {}
        for verdict in (Verdict.CRASH, Verdict.TIMEOUT):
            for index in sorted(progress.outcomes):
                outcome = progress.outcomes[index]
                if outcome.verdict is verdict and index in progress.deaths:
                    found[index] = self._shrink_death(replace(job, first=index), outcome)
                    break
        return found

    def _shrink_death(self, job: Job, outcome: Outcome) -> Outcome:
        progress = Progress(self._path())
        job = replace(job, journal=str(progress.path))
        death, shrunk = self._finish(self._fresh, work.shrink_death, (job, outcome.verdict), progress)
        if death is not None:
            return outcome
        outcome = replace(outcome, snippet=shrunk.snippet, shrunk=shrunk.alone is True)
        if shrunk.alone is False:
            return replace(outcome, detail=f"{outcome.detail} (not so when it is tried alone)")
        if not shrunk.smaller:
            return outcome
        progress = Progress(self._path())
        job = replace(job, journal=str(progress.path), first=0)
        death, _ = self._finish(self._fresh, work.work_alone, (job, shrunk.example), progress)
        if death is None:
            return replace(outcome, snippet=shrunk.first_snippet, shrunk=False)
        small = self._of_death(progress, death)
        if small.verdict is not outcome.verdict:
            return replace(outcome, snippet=shrunk.first_snippet, shrunk=False)
        return replace(small, snippet=shrunk.snippet, shrunk=True)


def _quieten_tracker() -> None:
    """No warnings about leftovers of the killed workers' libraries: Python's tracker cleans them up."""
    ignore = "ignore::UserWarning:multiprocessing.resource_tracker"
    known = os.environ.get("PYTHONWARNINGS", "")
    if ignore not in known:
        os.environ["PYTHONWARNINGS"] = f"{known},{ignore}" if known else ignore


def _signal(process: int, number: int) -> None:
    with suppress(OSError):
        os.kill(process, number)


def _ordinary(progress: Progress) -> bool:
    """True if there is a fault for which a worker can seek a smaller example."""
    return any(
        (outcome.verdict.is_fault or outcome.core) and index not in progress.deaths
        for index, outcome in progress.outcomes.items()
    )


def _of_death(progress: Progress, death: Death, patience: float) -> Outcome:
    """The outcome of the example that was being tried, with where the worker was and the end of its stderr."""
    trace = _end_of(Path(f"{progress.path}.trace"), _TRACE)
    words = _end_of(Path(f"{progress.path}.err"), _TAIL).strip()
    where = _where(trace)
    after = "" if progress.open is not None or not progress.prepared else "after the result, "
    detail = f"{after}the process ended with {death}"
    verdict = Verdict.CRASH
    if death.late or "Timeout (" in trace[:20]:
        verdict, detail = Verdict.TIMEOUT, f"{after}timed out after {progress.limit * patience:g} s"
    elif death.slept:
        verdict, detail = (
            Verdict.TIMEOUT,
            f"{after}timed out after {progress.limit:g} s, the last of them without any CPU use",
        )
    elif death.code == -_OVER:
        verdict, detail = Verdict.TIMEOUT, f"{after}timed out after {progress.limit:g} CPU seconds"
    detail = "".join((detail, f" in {where}" if where else "", f": {words}" if words else ""))
    return Outcome(verdict, detail, example=progress.example, blame="backend", seconds=progress.elapsed())


def _end_of(path: Path, size: int) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read(size).decode(errors="replace")
    except OSError:
        return ""


def _where(trace: str) -> str:
    """The innermost frames of the thread that ran the case, in what faulthandler wrote."""
    threads = re.split(r"^(?:Current thread|Thread) .*$", trace, flags=re.M)[1:]
    chosen = next((text for text in threads if _HERE in text), "")
    frames = re.findall(r'^  File "(.+?)", line (\d+) in (\S+)', chosen, re.M)
    return " < ".join(f"{name} ({Path(file).name}:{line})" for file, line, name in frames[:_FRAMES])


def _result(case: Case, outcomes: Sequence[Outcome], progress: Progress) -> CaseResult:
    tally = Tally(case.name, case.tags)
    for outcome in outcomes:
        tally.add(outcome)
    for index, small in progress.shrunk.items():
        tally.replace_fault(progress.outcomes[index], small)
    result = tally.result()
    missing = (progress.count or 0) - len(progress.outcomes)
    if missing > 0:
        words = f"{missing} of {progress.count} examples were not tried after {len(progress.deaths)} crashes or hangs"
        result = replace(result, detail="; ".join(filter(None, (result.detail, words))))
    return result
