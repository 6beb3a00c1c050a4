"""Runs TOSA files in Arm's reference model, in separate processes, since some programs crash the model."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delegatekit_api import ExecutionError

from .. import processes
from . import reference
from .graph import Graph
from .reader import read
from .reference_process import DONE, packed, unpacked
from .types import Array

#: Seconds to wait for an answer.
_PATIENCE: Final = 300.0
#: Programs that a process runs: what a run leaves behind does not add up.
_RUNS: Final = 500
#: Processes that wait for the next program.
_IDLE: Final = 2
_PROCESS: Final = Path(__file__).with_name("reference_process.py")
_WHERE: Final = "TOSA reference model"


class Isolated:
    """One TOSA program, for untrusted files. A process of the model runs any program: while one is open, it is kept."""

    def __init__(self, tosa: bytes) -> None:
        """Raises FormatError for a damaged file."""
        self._program: bytes = bytes(tosa)
        self._graph: Final[Graph] = read(tosa)
        POOL.hold()
        self._release: Final = weakref.finalize(self, POOL.release)

    def close(self) -> None:
        """No longer use it; calling twice is harmless."""
        self._release()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, as of `reference.run`. Raises ExecutionError, also if the model's process ends."""
        arrays = reference.checked(self._graph, inputs)
        try:
            with POOL.model() as process:
                reply = process.ask(packed(self._program, arrays))
        except processes.EndedError as error:
            raise ExecutionError(f"on this program the model {error}", where=_WHERE) from None
        if not reply.startswith(DONE):
            raise ExecutionError(reply[1:].decode(errors="replace"), where=_WHERE)
        return unpacked(reply[1:])[1]


class _Model(processes.Answering):
    """A process of the model."""

    def __init__(self) -> None:
        super().__init__(
            [sys.executable, "-I", str(_PROCESS), *sys.path],
            seconds=_PATIENCE,
            # Without a path there is no debugger, which the model would start on a failure.
            environment={name: value for name, value in os.environ.items() if name != "PATH"},
        )
        self.runs = 0


class Pool:
    """The processes that wait for the next program, as long as somebody holds them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may release while it is taken
        self._holders = 0
        self._idle: list[_Model] = []

    def hold(self) -> None:
        """Keep processes, until as many `release` as `hold`."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """End the processes if nobody holds them any more."""
        with self._lock:
            self._holders -= 1
            ended, self._idle = ([], self._idle) if self._holders else (self._idle, [])
        for process in ended:
            process.end()

    @contextmanager
    def model(self) -> Iterator[_Model]:
        """A process that nobody else uses meanwhile. It is kept for the next program, unless it raises an error."""
        with self._lock:
            found = self._idle.pop() if self._idle else None
        if found is None or found.foreign or not found.alive:
            found = _Model()
        yield found
        found.runs += 1
        with self._lock:
            if self._holders and found.runs < _RUNS and len(self._idle) < _IDLE:
                self._idle.append(found)
                return
        found.end()


POOL: Final = Pool()
