"""The parent's side of a backend's runtime process: starts it, sends requests, detects its death, stops it."""

from __future__ import annotations

import atexit
import os
import socket
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import torch

from delegatekit_api import ExecutionError
from delegatekit_toolkit.limited import Ended, Process, module
from delegatekit_toolkit.messages import Channel, GoneError

from ..blame import fault, warn
from ..carried import described, restored
from ..first_import import FIRST_IMPORTS
from .memory import write_pieces

_WORKER: Final = f"{__package__}.worker"
#: Lines of a runtime's output that an error shows.
_WORDS: Final = 5
#: Seconds for starting and for the availability check; calls take as long as their callers allow.
START: Final = 120.0
#: Seconds for a process to exit by itself when it is not needed any more.
_REST: Final = 2.0

#: Provides the bytes that a runtime requests while it works on a request.
Giver: TypeAlias = Callable[[Mapping[str, Any]], Any]

_DEADLINE: Final[ContextVar[float | None]] = ContextVar("deadline", default=None)


def _nothing(wanted: Mapping[str, Any]) -> Any:
    raise ExecutionError("asks for data of its file when there is none")


class DiedError(Exception):
    """The process of a runtime ended, or was stopped, before it answered; the text says how: "crashed (SIGSEGV)"."""


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """While this is open, calls in this thread are stopped at `deadline` (of `time.monotonic`)."""
    token = _DEADLINE.set(deadline)
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def the_deadline() -> float | None:
    """The deadline of this thread's calls."""
    return _DEADLINE.get()


class Child:
    """A process with one backend's runtime, which ends with this process. Requests need the lock of `using`."""

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self.alive = True
        self.lock = Lock()
        #: Handles to destroy as soon as no request is running.
        self._abandoned: deque[int] = deque()
        self._ended: Ended | None = None
        self._process: Process | None = None
        self._handles = 0
        self._started = False
        self._begin()

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        self._channel = Channel(ours)
        ready = Event()
        self._keeper = Thread(target=self._keep, args=(theirs, ready), daemon=True)
        self._keeper.start()
        ready.wait()

    def new_number(self) -> int:
        """A number for a handle."""
        self._handles += 1
        return self._handles

    def ask(
        self,
        message: Mapping[str, Any],
        files: Sequence[Any] = (),
        deadline: float | None = None,
        giver: Giver = _nothing,
    ) -> Mapping[str, Any]:
        """The answer to a request. Raises what the runtime raised, and DiedError."""
        try:
            self._start()
            self._channel.send(message, files)
            answer = self._answer(deadline, giver)
        except GoneError:
            raise DiedError(self._death()) from None
        except TimeoutError:
            self.stop()
            raise DiedError(self._death("took longer than it may and was stopped")) from None
        except BaseException:  # Ctrl-C during the request
            self.stop()
            raise
        if "error" in answer:
            raise restored(answer["error"])
        return answer

    def destroy(self, number: int) -> None:
        """Release a handle: now, or after the running request of another thread, or of this one."""
        self._abandoned.append(number)
        if self.alive and self.lock.acquire(blocking=False):
            try:
                errors = self._destroy_abandoned()
            finally:
                self.release()
            if errors:
                raise errors[0]

    def release(self) -> None:
        """Let other threads send requests."""
        self.lock.release()
        while self._abandoned and self.alive and self.lock.acquire(blocking=False):
            try:
                for error in self._destroy_abandoned():
                    warn(f"backend {self._backend}: its runtime failed to release a delegate: {fault(error)}")
            finally:
                self.lock.release()

    def stop(self) -> None:
        """End the process now."""
        self.alive = False
        if self._process is not None:
            self._process.stop()
        self._channel.close()

    def close(self) -> None:
        """Let the process exit by itself, within some seconds."""
        self.alive = False
        self._channel.close()
        self._keeper.join(_REST)
        if self._process is not None and self._keeper.is_alive():
            self._process.stop()
            self._keeper.join(_REST)

    def forget(self) -> None:
        """Close this end, after which the process exits, unless it belongs to the process that forked this one."""
        self.alive = False
        self._channel.close()

    def _keep(self, theirs: socket.socket, ready: Event) -> None:
        command = module(_WORKER, self._backend, str(theirs.fileno()), str(torch.get_num_threads()))
        environment = {FIRST_IMPORTS: "off", "PYTHONUNBUFFERED": "1"}
        try:
            self._process = Process(command, environment=environment, joined=True, files=(theirs.fileno(),))
        except OSError as error:
            self._ended = Ended((), (), f"could not be started: {error}", None)
            return
        finally:
            theirs.close()
            ready.set()
        self._ended = self._process.wait(None)

    def _start(self) -> None:
        """Wait until the runtime is ready."""
        if self._started:
            return
        answer = self._answer(monotonic() + START, _nothing)
        self._started = True
        if "error" in answer:
            self.close()
            raise restored(answer["error"])

    def _answer(self, deadline: float | None, giver: Giver) -> Mapping[str, Any]:
        """The next answer; meanwhile the runtime's requests for bytes are served."""
        while True:
            answer, _ = self._channel.receive(deadline)
            if "ask" not in answer:
                return answer
            try:
                file, places = write_pieces([giver(answer)])
            except Exception as error:
                self._channel.send({"error": described(error)})
                continue
            try:
                self._channel.send({"places": places}, (file,))
            finally:
                os.close(file)

    def _death(self, how: str = "") -> str:
        """The process's exit, or `how` it was ended, and its last output."""
        self.alive = False
        self._keeper.join(_REST)
        if self._keeper.is_alive() and self._process is not None:  # it closed its end, but is still running
            self._process.stop()
            self._keeper.join(_REST)
        self._channel.close()
        ended = self._ended or Ended((), (), "closed the connection", None)
        words = "\n    ".join(ended.last[-_WORDS:])
        return (how or ended.ending) + (f"; it printed last:\n    {words}" if words else "")

    def _destroy_abandoned(self) -> list[Exception]:
        errors: list[Exception] = []
        while self._abandoned and self.alive:
            try:
                self.ask({"do": "destroy", "handle": self._abandoned.popleft()}, (), the_deadline())
            except DiedError as error:
                errors.append(RuntimeError(f"the process of the runtime {error}"))
            except Exception as error:
                errors.append(error)
        return errors


class _Children:
    """The processes of this process, one for each loaded backend: a plugin that is loaded again gets another."""

    def __init__(self) -> None:
        self._begin()

    def get(self, owner: object, make: Callable[[], Child]) -> Child:
        with self._lock:
            child = self._known.get(owner)
            if child is None or not child.alive:
                child = self._known[owner] = make()
                weakref.finalize(owner, child.forget)
            return child

    def close(self) -> None:
        for child in tuple(self._known.values()):
            with suppress(Exception):
                child.close()

    def forget(self) -> None:
        for child in tuple(self._known.values()):
            child.forget()
        self._begin()

    def _begin(self) -> None:
        self._lock = Lock()
        self._known: WeakKeyDictionary[object, Child] = WeakKeyDictionary()


_CHILDREN: Final = _Children()
atexit.register(_CHILDREN.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_CHILDREN.forget)


def end_all() -> None:
    """End the processes of all runtimes now; later calls start others."""
    _CHILDREN.close()


@contextmanager
def using(owner: object, make: Callable[[], Child]) -> Iterator[Child]:
    """The process for the runtime of a backend, locked for this thread; made if there is none.

    It ends, too, when `owner`, the loaded backend, is collected.
    """
    while True:
        child = _CHILDREN.get(owner, make)
        child.lock.acquire()
        if child.alive:
            break
        child.lock.release()  # it died during another thread's request
    try:
        yield child
    finally:
        child.release()
