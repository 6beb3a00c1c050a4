"""Decompresses weight streams with the decoder that comes with Vela, in a process of its own.

The decoder ends the process that it runs in when a stream is damaged. A blob must not be able to do that to its user.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Final

import numpy as np
import numpy.typing as npt

from delegatekit_api import Availability, FormatError, RuntimeUnavailableError

#: Seconds after which an answer is not waited for any more: the largest networks take one or two.
_PATIENCE: Final = 300.0
_PROCESS: Final = Path(__file__).with_name("decompressor_process.py")


def availability() -> Availability:
    """Whether the decoder is installed."""
    try:
        from ethosu import mlw_codec  # noqa: F401
    except ImportError as error:
        return Availability(False, f"Vela's weight decoder is not installed ({error}): pip install ethos-u-vela")
    return Availability(True)


def decompress(data: bytes, where: str) -> npt.NDArray[np.int16]:
    """The weights of a stream, in its order.

    Raises FormatError if the decoder does not take it, and RuntimeUnavailableError if there is none.
    """
    with _LOCK:
        global _process  # noqa: PLW0603
        if _process is None or _process.owner != os.getpid():
            available = availability()
            if not available.available:
                raise RuntimeUnavailableError(available.reason, where=where)
            _process = _Process()
        try:
            return _process.ask(data)
        except OSError as error:
            _process.end()
            _process = None
            raise FormatError("the weight stream is damaged: it cannot be decoded", where=where) from error


def hold() -> None:
    """The caller will decompress: once started, the process is kept until `release`."""
    with _LOCK:
        global _holders  # noqa: PLW0603
        _holders += 1


def release() -> None:
    """The caller of `hold` is done; with the last one the process ends."""
    with _LOCK:
        global _holders, _process  # noqa: PLW0603
        _holders -= 1
        if _holders == 0 and _process is not None:
            _process.end()
            _process = None


class _Process:
    """The running decoder. It belongs to the process that started it: a fork has to start its own."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_PROCESS), *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def ask(self, data: bytes) -> npt.NDArray[np.int16]:
        """One answer. Raises OSError if the process ends instead."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        limit = threading.Timer(_PATIENCE, self._process.kill)
        limit.start()
        try:
            questions.write(struct.pack("<I", len(data)))
            questions.write(data)
            questions.flush()
            (count,) = struct.unpack("<I", _read(answers, 4))
            return np.frombuffer(_read(answers, 2 * count), "<i2").astype(np.int16)
        finally:
            limit.cancel()

    def end(self) -> None:
        """Stop the process."""
        if self.owner != os.getpid():
            return
        self._process.kill()
        with contextlib.suppress(OSError):
            self._process.communicate()


def _read(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) != count:
        raise OSError("the decoder ended")
    return data


def _end() -> None:
    if _process is not None:
        _process.end()


_LOCK: Final = threading.Lock()
_process: _Process | None = None
_holders = 0
atexit.register(_end)
