"""Compiles partitions in a separate process, and reports its death."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delegatekit_api import LoweringError
from delegatekit_toolkit.limited import Ended, Processes, module
from delegatekit_toolkit.scratch import scratch

from ..plugins import restored
from .constants import write_constants
from .packed import DamagedError, unpack
from .plain_program import NotPlainError
from .request import CONSTANTS, ERROR, Request, result_place
from .result import CheckedResult
from .task import Task

_WORKER: Final = "delegatekit.compiling.worker"
#: Lines of a compiler's output that an error shows.
_WORDS: Final = 5


class CompilerDiedError(Exception):
    """The process of a compiler died early, or the backend raised a foreign exception."""


class Isolation:
    """Starts compilers' processes; its method may be called from several threads."""

    def __init__(self, seconds: float | None, memory: int | None) -> None:
        """`seconds` of wall time and `memory` in bytes that each process may take; None: no limit."""
        self._seconds = seconds
        self._memory = memory
        self._processes = Processes()

    def compile(self, task: Task) -> list[CheckedResult]:
        """Do a task in one process.

        Raises the backend's refusal, and CompilerDiedError for any other failure.
        """
        try:
            plain = task.plain
        except NotPlainError as error:
            raise LoweringError(
                f"cannot be handed to a process of its own: {error}",
                where=task.places[0],
                hint="compile without isolation",
            ) from None
        with scratch() as place:
            self._write(place, task)
            ended = self._run(place)
            if ended.code == 0:
                with suppress(OSError, DamagedError):
                    packed = (result_place(place, index).read_bytes() for index in range(len(plain)))
                    return [unpack(data, item.constants) for data, item in zip(packed, plain, strict=True)]
            raise _error(place, ended)

    def stop(self) -> None:
        """End all processes, and start no others."""
        self._processes.stop()

    def _write(self, place: Path, task: Task) -> None:
        Request(
            backend=task.backend.name,
            options=task.options.to_mapping(),
            programs=[item.content for item in task.plain],
            places=list(task.places),
            constants=write_constants(place / CONSTANTS, (item.constants for item in task.plain)),
            memory=self._memory,
        ).write(place)

    def _run(self, place: Path) -> Ended:
        # Temporary files of a killed compiler are deleted with the folder.
        ended = self._processes.run(module(_WORKER, str(place)), self._seconds, {"TMPDIR": str(place)})
        if ended is None:
            raise CompilerDiedError("was not started: another compiler has failed")
        return ended


def _error(place: Path, ended: Ended) -> Exception:
    """The error that the process recorded, or how it ended, with the last lines of its output."""
    try:
        told: Mapping[str, Any] = json.loads((place / ERROR).read_text("utf-8"))
    except (OSError, ValueError):
        told = {}
    words = "\n    ".join(ended.last[-_WORDS:])
    printed = f"; it printed last:\n    {words}" if words else ""
    if "fault" in told:
        return CompilerDiedError(f"{told['fault']}{printed}")
    if told:
        return restored(told)
    return CompilerDiedError(f"its process {ended.ending}{printed}")
