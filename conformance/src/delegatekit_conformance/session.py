"""A run of the suite from settings to results: chooses the cases, has them run, keeps and marks the results."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import Any

from delegatekit.plugins import address_of, discovery

from .cases import Case, all_cases
from .cases.declared.collect import declarations
from .context import Context
from .errors import InputError
from .expectations import Expectations, load
from .looseness import MEASURE_SCHEMES, of_expectations, of_options, too_loose, with_measured
from .outcome import CaseResult
from .run import Run
from .runner import Limits, NoBoardError, Pool, Source, select, shard
from .runner.journal import Finished
from .settings import Settings


class Listener:
    """Receives the events of a run. Every method does nothing; override those of interest."""

    def begin(self, total: int, results: Mapping[str, CaseResult]) -> None:
        """The run begins: `total` cases are chosen, `results` holds those that were finished before.

        `results` is updated during the run.
        """

    def result(self, result: CaseResult) -> None:
        """A case is finished."""

    def note(self, text: str) -> None:
        """A remark for the user."""

    def end(self) -> None:
        """The run is over, or has failed."""


class Interrupted(KeyboardInterrupt):
    """The run was interrupted from the keyboard or by SIGTERM; `run` has the cases that were finished."""

    def __init__(self, run: Run) -> None:
        super().__init__("the conformance run was interrupted")
        self.run = run


class Session:
    """A run of the suite against one backend.

        from delegatekit_conformance import Session, Settings

        if __name__ == "__main__":  # cases run in processes of their own, which import this file
            session = Session(Settings("acme", select=("contract", "operators/aten.add*"), profile="quick"))
            run = session.run()
            for result in run.faults:
                print(result.case, result.verdict.value, result.faults[0].detail)
            print("passed" if session.accepts(run) else "failed")

    `delegatekit_conformance.report` prints a run and writes it as JSON, JUnit XML, Markdown, CSV and HTML. To run
    single cases with the same worker processes, use a session as a context manager, and call `run_case`.
    """

    def __init__(self, settings: Settings, *, listener: Listener | None = None, source: Source = all_cases) -> None:
        """Check the settings against what is installed; nothing is run yet.

        `source` gives the cases, here and in every worker: a function of a module that workers can import.

        Raises InputError if the backend is not installed or the file of expectations is wrong, PluginError if the
        backend cannot be used, and exceptions of its `make_options` if an option is wrong.
        """
        self.settings = settings
        if settings.backend not in discovery.backends(check=False):
            unknown = discovery.unknown_backend(settings.backend)
            raise InputError(unknown.what, hint=unknown.hint)
        self._backend = discovery.get_backend(settings.backend)
        options = self._backend.make_options(settings.options)
        #: The known faults: of the file that the settings name, or else of the vendor's.
        self.expectations: Expectations = load(settings.backend, settings.expectations).under(options)
        self.context: Context = replace(settings.context, known=self.expectations.excuses)
        self._listener = listener or Listener()
        self._source = source
        self._pool: Pool | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes of `run_case`. The session can be used again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    @cached_property
    def cases(self) -> Mapping[str, Case]:
        """All cases of the suite for the backend by name, whether the settings select them or not."""
        return self._source(self.context)

    @cached_property
    def names(self) -> Sequence[str]:
        """The names of the cases that are run: selected, and of the shard. Raises InputError if none is selected."""
        found = select(self.cases, self.settings.select)
        if not found:
            rooms = dict.fromkeys(name.partition("/")[0] for name in self.cases)
            raise InputError(
                f"no case matches {' '.join(self.settings.select)!r}; there are {', '.join(rooms)} "
                f"(`delegatekit conform {self.settings.backend} --list` shows all names)"
            )
        return shard(self.cases, found, *(self.settings.shard or (1, 1)))

    def run(self) -> Run:
        """Run the cases; the results are in the order of the suite, marked with the expectations.

        Raises Interrupted, which has the results so far, after an interrupt from the keyboard or a SIGTERM.
        """
        names = self.names
        self._note_runtime()
        finished = self._finished()
        before = {} if finished is None else finished.results
        results = {name: self.expectations.mark(before[name]) for name in names if name in before}
        if results:
            self._listener.note(f"{len(results)} of {len(names)} cases are finished in {self.settings.resume}")
        facts: dict[str, Any] = {}
        interrupted = False
        start, begun = time.perf_counter(), time.gmtime()
        self._listener.begin(len(names), results)
        running = self._results([name for name in names if name not in results], facts)
        try:
            with _terminable():
                self._collect(running, finished, results)
        except NoBoardError as error:
            interrupted = True
            self._listener.note(f"{error}\n  -> --resume FILE goes on where this run ended")
        except KeyboardInterrupt:
            interrupted = True
            self._listener.note(f"interrupted: {len(names) - len(results)} of {len(names)} cases not run")
        finally:
            running.close()  # type: ignore[attr-defined]  # gives up the cases that still run
            self.close()
            self._listener.end()
            if finished is not None:
                finished.close()
        found = [results[name] for name in names if name in results]
        declared = declarations(self.context)
        loose = too_loose(declared, found) if self._judges_numbers(results) else None
        if loose is not None:
            found.append(self.expectations.mark(loose))
        run = Run.of(
            self.context,
            found,
            selection=" ".join(self.settings.select) or "*",
            shard=self.settings.shard,
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", begun),
            seconds=time.perf_counter() - start,
            device={**self.settings.device, **self._places(), **facts.pop("device", {})},
            unused_expectations=self.expectations.unused(self.cases),
            expectations=self.expectations.origin,
            chosen=len(names),
            suite=len(self.cases),
            declarations=(
                *of_options(found),
                *with_measured((*declared, *of_expectations(self.expectations)), found),
            ),
            **facts,
        )
        if interrupted:
            raise Interrupted(run)
        return run

    def run_case(self, name: str) -> CaseResult:
        """Run one case, selected or not, and mark it with the expectations. Raises KeyError if there is none."""
        return self.expectations.mark(self._workers().run_case(name))

    def accepts(self, run: Run) -> bool:
        """True if the run has only expected faults and, where the expectations are strict, no unexpected pass."""
        return not run.faults and not (self.expectations.strict and run.unexpected_passes)

    def _judges_numbers(self, results: Mapping[str, CaseResult]) -> bool:
        """True if declared numbers can be judged by these results: all cases of each chosen room, and no shard.

        A part of a room, one of the rooms that measure the same, or a run that ended early may lack the examples that
        a number was declared for. All shards would report the same.
        """
        if self.settings.shard is not None or len(results) < len(self.names):
            return False
        rooms = {name.partition("/")[0] for name in results}
        rooms |= MEASURE_SCHEMES if rooms & MEASURE_SCHEMES else set()
        return all(name in results for name in self.cases if name.partition("/")[0] in rooms)

    def _collect(
        self, running: Iterator[CaseResult], finished: Finished | None, results: dict[str, CaseResult]
    ) -> None:
        """Take in results as they come, up to the number of faults that ends the run."""
        most = self.settings.maxfail
        for result in running:
            if finished is not None:
                finished.add(result)
            marked = results[result.case] = self.expectations.mark(result)
            self._listener.result(marked)
            if most and sum(one.is_fault for one in results.values()) >= most:
                left = len(self.names) - len(results)
                self._listener.note(f"stopped after {most} cases with faults; {left} not run")
                return

    def _results(self, names: Sequence[str], facts: dict[str, Any]) -> Iterator[CaseResult]:
        """Run the cases here or on a cluster; facts about the workers of a cluster go into `facts`."""
        if self.settings.scheduler:
            from .runner.cluster import run_on_cluster

            address, limits = self.settings.scheduler, self._limits()
            note, kind = self._listener.note, self.settings.device.get("kind", "")
            yield from run_on_cluster(address, self.context, names, self.cases, limits, facts, self._source, note, kind)
        else:
            yield from self._workers().run(names)

    def _places(self) -> dict[str, str]:
        """Where the backend's runtime is, if that is not here."""
        address = address_of(self.settings.backend)
        return {"address": address.partition("?")[0]} if address else {}

    def _workers(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(
                self.context, jobs=self.settings.jobs, limits=self._limits(), cases=self.cases, source=self._source
            )
        return self._pool

    def _limits(self) -> Limits:
        return Limits(memory=int(self.settings.memory * 2**30) or None)

    def _finished(self) -> Finished | None:
        if self.settings.resume is None:
            return None
        return Finished(self.settings.resume, self.context, self._backend.distribution)

    def _note_runtime(self) -> None:
        runtime = self._backend.runtime_availability()
        if not runtime.available and not self.settings.scheduler:
            self._listener.note(
                f"the runtime of {self.settings.backend} is not available: {runtime.reason}\n"
                "  -> cases are compiled only; no result of a delegate is compared"
            )


@contextmanager
def _terminable() -> Iterator[None]:
    """Within the block the first SIGTERM interrupts the main thread, as Ctrl-C does: CI systems end jobs so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, before)
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
