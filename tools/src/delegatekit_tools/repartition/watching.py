"""Compilers that are watched: what each failed at is known, and nothing is compiled twice."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from torch.fx import Node

from delegatekit.compiling import CheckedResult, Compiler, Compiling, Task
from delegatekit.lowering import is_work
from delegatekit_api import DelegateKitError

#: The content of a task: backend, and of each partition its method, number, graph and inputs.
_Key: TypeAlias = tuple[str, tuple[tuple[str, int, str, tuple[str, ...]], ...]]

#: Characters of a compiler's error that are kept.
_LONGEST = 300


class OutOfTriesError(Exception):
    """As many compilations have failed or were tried in part as may be."""


@dataclass(frozen=True)
class Failure:
    """A task that a compiler failed at."""

    task: Task
    error: BaseException

    @property
    def operators(self) -> list[Node]:
        """The operators of the task's partitions, in order."""
        return [node for program in self.task.programs for node in program.view.graph.nodes if is_work(node)]

    @property
    def text(self) -> str:
        """The compiler's error in one line."""
        error = self.error
        what = error.what if isinstance(error, DelegateKitError) else f"{type(error).__name__}: {error}"
        # The error of a process says all by itself.
        text = " ".join(what.removeprefix("CompilerDiedError: ").split())
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."

    @property
    def whole(self) -> str:
        """All that the compiler said, and where."""
        return f"{getattr(self.error, 'where', None) or ''}\n{self.error}"


@dataclass
class Watch:
    """What compilers did."""

    #: Compilations that may still be tried while an operator is sought.
    tries: int
    failure: Failure | None = None
    results: dict[_Key, list[CheckedResult]] = field(default_factory=dict)


@dataclass(frozen=True)
class Watching(Compiling):
    """Settings of compilers that are watched."""

    watch: Watch = field(default_factory=lambda: Watch(0))

    def compiler(self) -> Compiler:
        """What compiles, and notes what it did."""
        return _Watched(self, self.watch)

    def error_of(self, task: Task) -> Failure | None:
        """The failure of a task that is tried; None if it compiles. Raises OutOfTriesError."""
        if _key(task) in self.watch.results:
            return None
        if self.watch.tries <= 0:
            raise OutOfTriesError
        self.watch.tries -= 1
        self.watch.failure = None
        try:
            list(self.compiler().run([task]))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            return Failure(task, error)
        return None


@dataclass(frozen=True)
class _Watched(Compiler):
    watch: Watch

    def run(self, tasks: Sequence[Task]) -> Generator[list[CheckedResult], None, None]:
        """As `Compiler.run`."""
        known = self.watch.results
        keys = [_key(task) for task in tasks]
        results = super().run([task for key, task in zip(keys, tasks, strict=True) if key not in known])
        try:
            for key, task in zip(keys, tasks, strict=True):
                if key not in known:
                    try:
                        known[key] = next(results)
                    except BaseException as error:
                        self.watch.failure = Failure(task, error)
                        raise
                yield known[key]
        finally:
            results.close()


def _key(task: Task) -> _Key:
    parts = (
        (item.method, item.index, str(item.view.graph), tuple(node.name for node in item.view.inputs))
        for item in task.programs
    )
    return task.backend.name, tuple(parts)
