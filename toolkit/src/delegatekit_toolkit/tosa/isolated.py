"""Runs a TOSA file in Arm's reference model, in a separate process, since some programs crash the model.

The first question contains the program, each later one the inputs as an .npz file. An answer is `_DONE` and the outputs
in such a file, or `_REFUSED` and a text.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from delegatekit_api import DelegateKitError, ExecutionError

from .. import processes
from . import reference
from .types import Array

#: Seconds to wait for an answer.
_PATIENCE: Final = 300.0
_DONE: Final = b"+"
_REFUSED: Final = b"-"
_START: Final = (
    "import sys; sys.path[:0] = sys.argv[1:]; from delegatekit_toolkit.tosa import isolated; isolated.answer()"
)
_WHERE: Final = "TOSA reference model"


class Isolated:
    """One TOSA program, for untrusted files. Its process starts with the first call and ends with `close`."""

    def __init__(self, tosa: bytes) -> None:
        self._program = bytes(tosa)
        self._process: processes.Answering | None = None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, as of `reference.run`. Raises ExecutionError, also if the model's process ends."""
        try:
            reply = self._started().ask(_packed(inputs))
        except processes.EndedError as error:
            self.close()
            raise ExecutionError(f"on this program the model {error}", where=_WHERE) from None
        if not reply.startswith(_DONE):
            raise ExecutionError(reply[1:].decode(errors="replace"), where=_WHERE)
        return _unpacked(reply[1:])

    def close(self) -> None:
        """End the process; calling twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _started(self) -> processes.Answering:
        if self._process is None:
            self._process = processes.Answering(
                [sys.executable, "-I", "-c", _START, *sys.path],
                seconds=_PATIENCE,
                # Without a path there is no debugger, which the model would start on a failure.
                environment={name: value for name, value in os.environ.items() if name != "PATH"},
            )
            self._process.ask(self._program)
        return self._process


def answer() -> None:
    """The main loop of the process."""
    program: list[bytes] = []

    def reply(question: bytes) -> bytes:
        if not program:
            program.append(question)
            return _DONE
        try:
            return _DONE + _packed(reference.run(program[0], _unpacked(question)))
        except DelegateKitError as error:
            return _REFUSED + str(error).encode()

    processes.answer(reply)


def _packed(arrays: Sequence[Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, *arrays)
    return file.getvalue()


def _unpacked(data: bytes) -> list[Array]:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return [file[name] for name in file.files]
