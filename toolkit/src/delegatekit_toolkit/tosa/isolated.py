"""Runs a TOSA file in Arm's reference model, in a separate process, since some programs crash the model."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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
_PROCESS: Final = Path(__file__).with_name("reference_process.py")
_WHERE: Final = "TOSA reference model"


class Isolated:
    """One TOSA program, for untrusted files. Its process starts with the first call and ends with `close`."""

    def __init__(self, tosa: bytes) -> None:
        """Raises FormatError for a damaged file."""
        self._program: Final = bytes(tosa)
        self._graph: Final[Graph] = read(tosa)
        self._process: processes.Answering | None = None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, as of `reference.run`. Raises ExecutionError, also if the model's process ends."""
        arrays = reference.checked(self._graph, inputs)
        try:
            reply = self._started().ask(packed(arrays))
        except processes.EndedError as error:
            self.close()
            raise ExecutionError(f"on this program the model {error}", where=_WHERE) from None
        if not reply.startswith(DONE):
            raise ExecutionError(reply[1:].decode(errors="replace"), where=_WHERE)
        return unpacked(reply[1:])

    def close(self) -> None:
        """End the process; calling twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _started(self) -> processes.Answering:
        if self._process is None:
            self._process = processes.Answering(
                [sys.executable, "-I", str(_PROCESS), *sys.path],
                seconds=_PATIENCE,
                # Without a path there is no debugger, which the model would start on a failure.
                environment={name: value for name, value in os.environ.items() if name != "PATH"},
            )
            self._process.ask(self._program)
        return self._process
