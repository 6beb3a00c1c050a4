"""Worker processes that stay: each is given one call after the other, and one that has died is replaced."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any, Final

#: Seconds between checks whether the workers are still needed, and that a killed process has for ending.
_POLL: Final = 0.2
_REST: Final = 10.0
#: Two threads must not poll a process at once: only the first would get its status. Starting a process polls all.
_PROCESSES: Final = threading.Lock()


class ClosedError(Exception):
    """The workers are being ended."""


class DiedError(Exception):
    """A worker ended before it had answered: by a signal (negative `code`), or with an exit status."""

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class RaisedError(Exception):
    """The exception that was raised in a worker, with its traceback."""


class Worker:
    """One process, which is used by one thread at a time."""

    def __init__(self, starter: BaseContext, prepare: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        """Start it: it calls `prepare(*arguments)` first."""
        self._connection, theirs = multiprocessing.Pipe()
        self._process: Any = starter.Process(target=_serve, args=(theirs, prepare, arguments))  # type: ignore[attr-defined]
        with theirs, _PROCESSES:
            self._process.start()
        self.calls = 0
        #: True if it has answered every call.
        self.idle = True

    @property
    def alive(self) -> bool:
        """True if the process has not ended."""
        return self._code() is None

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have it call the function; then `wait`."""
        self.calls, self.idle = self.calls + 1, False
        with suppress(OSError):  # it has died, and `answer` says so
            self._connection.send((function, arguments))

    def wait(self, seconds: float) -> bool:
        """True once it has answered or died; waits at most `seconds`."""
        return bool(wait([self._connection, self._process.sentinel], seconds))

    def answer(self) -> Any:
        """The returned value, once `wait` is true. Raises RaisedError and DiedError."""
        try:
            if not self._connection.poll():
                raise EOFError
            value, error = self._connection.recv()
        except (EOFError, OSError):
            self.end()
            raise DiedError(self._code()) from None
        self.idle = True
        if error:
            raise RaisedError(error)
        return value

    def end(self) -> None:
        """End the process, if it has not ended."""
        if not wait([self._process.sentinel], 0 if self.idle else _POLL):
            self._process.kill()
            wait([self._process.sentinel], _REST)
        self._code()

    def _code(self) -> int | None:
        with _PROCESSES:
            code: int | None = self._process.exitcode
        return code


class Workers:
    """This many workers at most, made when they are needed."""

    def __init__(
        self,
        size: int,
        recycle: int,
        starter: Callable[[], BaseContext],
        prepare: Callable[..., object],
        arguments: tuple[Any, ...],
    ) -> None:
        """A worker is replaced by a fresh one after `recycle` calls. `starter` gives their start method."""
        self._recycle = recycle
        self._starter = starter
        self._prepare, self._arguments = prepare, arguments
        self._places = threading.Semaphore(size)
        self._lock = threading.Lock()
        self._free: list[Worker] = []
        self._all: set[Worker] = set()
        self._stopped = threading.Event()

    @contextmanager
    def one(self) -> Iterator[Worker]:
        """A worker for this thread, which waits for one; afterwards it is ended if it has not answered.

        Raises ClosedError once the workers are stopped.
        """
        while not self._places.acquire(timeout=_POLL):
            self._check()
        try:
            worker = self._take()
            try:
                yield worker
            finally:
                self._give_back(worker)
        finally:
            self._places.release()

    def stop(self) -> None:
        """End all workers, those that are used, too."""
        self._stopped.set()
        with self._lock:
            for worker in self._all:
                worker.end()
            self._all.clear()
            self._free.clear()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise ClosedError

    def _take(self) -> Worker:
        with self._lock:
            self._check()
            while self._free:
                worker = self._free.pop()
                if worker.alive:
                    return worker
                self._all.discard(worker)  # it died while idle
            worker = Worker(self._starter(), self._prepare, self._arguments)
            self._all.add(worker)
            return worker

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            if worker.idle and worker.calls < self._recycle and not self._stopped.is_set():
                self._free.append(worker)
                return
            worker.end()
            self._all.discard(worker)


def _serve(connection: Connection, prepare: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """The loop of a worker: runs in its process."""
    prepare(*arguments)
    while True:
        try:
            function, given = connection.recv()
        except EOFError:
            return
        try:
            answer = function(*given), ""
        except Exception:
            answer = None, traceback.format_exc()
        connection.send(answer)
