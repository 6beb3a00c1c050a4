"""Runs a TOSA file in Arm's reference model, in a process of its own: over some programs the model ends its process.

A message between the two is a count (uint32, little-endian) of parts, each a length (uint64) and so many bytes. The
first one has the program, each later one the inputs as .npy files; an answer has a verdict, and the outputs or a text.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import IO, Any, Final

import numpy as np

from delegatekit_api import DelegateKitError, ExecutionError

from . import reference
from .types import Array

#: Seconds after which an answer is not waited for any more.
_PATIENCE: Final = 300.0
_DONE: Final = b"done"
_START: Final = (
    "import sys; sys.path[:0] = sys.argv[1:]; from delegatekit_toolkit.tosa import isolated; isolated.answer()"
)


class Isolated:
    """One TOSA program, for files that others wrote. Its process starts with the first call and ends with `close`."""

    def __init__(self, tosa: bytes) -> None:
        self._program = bytes(tosa)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs, as of `reference.run`. Raises ExecutionError, also for what ends the model's process."""
        try:
            process = self._started()
            assert process.stdin is not None and process.stdout is not None
            limit = threading.Timer(_PATIENCE, process.kill)
            limit.start()
            try:
                _send(process.stdin, list(map(_packed, inputs)))
                verdict, *parts = _receive(process.stdout)
            finally:
                limit.cancel()
        except OSError as error:
            self.close()
            raise ExecutionError("ended over this program", where="TOSA reference model") from error
        if verdict != _DONE:
            raise ExecutionError(b"".join(parts).decode(errors="replace"), where="TOSA reference model")
        return list(map(_unpacked, parts))

    def close(self) -> None:
        """End the process; twice is harmless."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _START, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Without a path there is no debugger, which the model would start when it fails.
                env={name: value for name, value in os.environ.items() if name != "PATH"},
            )
            weakref.finalize(self, self._process.kill)
            assert self._process.stdin is not None
            _send(self._process.stdin, [self._program])
        return self._process


def answer() -> None:
    """What the process does: answer until there is no more to read."""
    # What the model prints must not come among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    questions = sys.stdin.buffer
    (program,) = _receive(questions)
    while True:
        try:
            inputs = _receive(questions)
        except OSError:
            return
        try:
            outputs = reference.run(program, list(map(_unpacked, inputs)))
        except DelegateKitError as error:
            _send(answers, [b"refused", str(error).encode()])
        else:
            _send(answers, [_DONE, *map(_packed, outputs)])


def _send(stream: IO[bytes], parts: Sequence[bytes]) -> None:
    stream.write(struct.pack("<I", len(parts)))
    for part in parts:
        stream.write(struct.pack("<Q", len(part)))
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> list[bytes]:
    """The parts of the next message. Raises OSError at the end of the stream."""
    (count,) = struct.unpack("<I", _exactly(stream, 4))
    return [_exactly(stream, struct.unpack("<Q", _exactly(stream, 8))[0]) for _ in range(count)]


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise OSError("the other process ended")
    return data


def _packed(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _unpacked(data: bytes) -> Array:
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array
