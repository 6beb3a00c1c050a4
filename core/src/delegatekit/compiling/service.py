"""Compiles partitions: in this process or in others, sequentially or in parallel, and only once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from delegatekit_toolkit.later import LARGEST_CACHED, Shelf

from ..errors.misuse import WrongArgumentError
from .cache import Cache, keys_of
from .isolation import Isolation
from .result import CheckedResult
from .task import Task


@dataclass(frozen=True)
class Compiling:
    """The way to run the backends' compilers."""

    #: The backends that run in processes of their own: all (True), or those named. Some always do.
    isolate: bool | Collection[str] = False
    #: Number of parallel compilers; with more than one they run in processes of their own.
    jobs: int = 1
    #: True if results are cached, of backends with a compiler version.
    cache: bool = True
    #: Limits of each process, in seconds and bytes; None: no limit.
    seconds: float | None = 3600.0
    memory: int | None = None

    def __post_init__(self) -> None:
        """Reject arguments that would be ignored or misunderstood."""
        if isinstance(self.isolate, str):
            raise WrongArgumentError(
                f"isolate = {self.isolate!r} is a text", hint=f"a list of backends: isolate=[{self.isolate!r}], or True"
            )
        if self.jobs < 1:
            raise WrongArgumentError(f"jobs = {self.jobs!r}", hint="at least one compiler runs at a time")

    def compiler(self) -> Compiler:
        """What compiles so. Settings of tools may give one that watches."""
        return Compiler(self)


@dataclass(frozen=True)
class Compiler:
    """Compiles the partitions of one lowering."""

    settings: Compiling

    def run(self, tasks: Sequence[Task]) -> Generator[list[CheckedResult], None, None]:
        """The results of each task, in order, as they finish. Raises the error of the first task that fails.

        That is whatever a compiler in this process raises, and CompilerDiedError for failures in others.
        """
        cache = Cache.of_user() if self.settings.cache else None
        isolation = Isolation(self.settings.seconds, self.settings.memory)
        shelf = Shelf()
        apart = [isolation if self._isolated(task, len(tasks)) else None for task in tasks]
        threads = ThreadPoolExecutor(self.settings.jobs, thread_name_prefix="compile")
        try:
            waiting = [self._start(*item, cache, threads, shelf) for item in zip(tasks, apart, strict=True)]
            for result in waiting:
                yield result()
        finally:
            isolation.stop()
            threads.shutdown(cancel_futures=True)

    def _start(
        self, task: Task, isolation: Isolation | None, cache: Cache | None, threads: ThreadPoolExecutor, shelf: Shelf
    ) -> Callable[[], list[CheckedResult]]:
        """Start a task, if it needs a process; the returned future has its results."""
        keys = None if cache is None or task.release() > LARGEST_CACHED else keys_of(task)
        if cache is not None and keys is not None:
            kept = [cache.find(key, constants) for key, constants in keys]
            found = [item for item in kept if item is not None]
            if len(found) == len(kept):
                return lambda: found
        future = None if isolation is None else threads.submit(isolation.compile, task)

        def finish() -> list[CheckedResult]:
            results = task.compile_here() if future is None else future.result()
            if cache is not None and keys is not None:
                for (key, constants), result in zip(keys, results, strict=True):
                    cache.keep(key, result, constants)
            return results if future is not None else task.released(results, shelf)

        return finish

    def _isolated(self, task: Task, tasks: int) -> bool:
        wanted = self.settings.isolate
        asked = wanted if isinstance(wanted, bool) else task.backend.name in wanted
        return asked or task.backend.description.isolated_compiler or (self.settings.jobs > 1 and tasks > 1)
