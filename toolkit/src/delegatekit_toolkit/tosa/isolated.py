"""Runs TOSA files in Arm's reference model, in separate processes, since some programs crash the model."""

from __future__ import annotations

import os
import sys
import threading
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
    """One TOSA program, for untrusted files. Any process of the model takes any program: the next has it warm."""

    def __init__(self, tosa: bytes) -> None:
        """Raises FormatError for a damaged file."""
        self._program: bytes = bytes(tosa)
        self._graph: Final[Graph] = read(tosa)

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, as of `reference.run`. Raises ExecutionError, also if the model's process ends."""
        arrays = reference.checked(self._graph, inputs)
        try:
            with _model() as process:
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


_idle: Final[list[_Model]] = []
_lock: Final = threading.Lock()


@contextmanager
def _model() -> Iterator[_Model]:
    """A process that nobody else uses meanwhile. It is kept for the next program, unless it raises an error."""
    with _lock:
        found = _idle.pop() if _idle else None
    if found is None or found.foreign or not found.alive:
        found = _Model()
    yield found
    found.runs += 1
    with _lock:
        if found.runs < _RUNS and len(_idle) < _IDLE:
            _idle.append(found)
            return
    found.end()
