"""Worker processes for libraries that may exit, hang or print: start, ask, end with this process.

A command from `guarded` ends with this process, however that ends, and so do all its descendants; `stop` ends it
earlier. `Answering` starts a process that answers questions, and `answer` is the loop in that process. A message is a
length (uint64, little-endian), the number of seconds that the answer may take (float64) and that many bytes. Only the
standard library is imported: such a process starts fast.
"""

from __future__ import annotations

import math
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

_HEAD: Final = struct.Struct("<Qd")
#: Seconds for a process to end by itself after the last question.
_REST: Final = 0.2
#: Grace in seconds before a process ends itself for lateness, in case no parent is left to end it.
_LATER: Final = 1
_GUARD: Final = Path(__file__).with_name("guard.py")
#: Seconds for a guard to kill its descendants, and between two signals to it.
_PATIENCE: Final = 10.0
_PERIOD: Final = 0.5


class EndedError(Exception):
    """The process ended instead of answering; the text is that of `ending`."""


class Answering:
    """A process that answers questions; it ends when nothing refers to it, and with this process. Not thread-safe.

    It belongs to the process that started it: a fork must start its own (see `foreign`).

    >>> with_length = "from delegatekit_toolkit.processes import answer; answer(lambda data: b'%d' % len(data))"
    >>> process = Answering([sys.executable, "-c", with_length], seconds=60, environment=search_path())
    >>> process.ask(b"four")
    b'4'
    >>> process.end()
    'ended the process with exit code 0'
    """

    def __init__(self, command: Sequence[str], *, seconds: float, environment: Mapping[str, str] | None = None) -> None:
        """Start the command. An answer may take this many `seconds`, then the process is ended.

        `environment` replaces that of this process. The process's stderr is discarded.
        """
        self._seconds: Final = seconds
        self._owner: Final = os.getpid()
        self._process: Final = subprocess.Popen(
            guarded(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        self._finish: Final = weakref.finalize(self, _end, self._process, self._owner)

    @property
    def foreign(self) -> bool:
        """True in a fork of the process that started it."""
        return self._owner != os.getpid()

    @property
    def alive(self) -> bool:
        """True if it has not ended."""
        return self._process.poll() is None

    def ask(self, question: bytes) -> bytes:
        """The answer. Raises EndedError if the process ends instead, or takes too long."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        limit = threading.Timer(self._seconds, self._process.terminate)
        limit.start()
        try:
            _send(questions, question, self._seconds)
            return _receive(answers)[0]
        except (OSError, EOFError, ValueError):
            late = limit.finished.is_set()
            how = self.end()
            raise EndedError(f"took longer than {self._seconds:g} s and was stopped" if late else how) from None
        finally:
            limit.cancel()

    def end(self) -> str:
        """End it, if it has not ended; calling twice is harmless. Returns how it ended."""
        self._finish()
        return ending(self._process.returncode or 0)


def answer(reply: Callable[[bytes], bytes]) -> None:
    """Answer questions with `reply` until there are no more: the main loop of such a process.

    Output printed meanwhile is kept out of the answers. An answer that takes too long ends the process.
    """
    alarm = getattr(signal, "alarm", lambda seconds: None)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            question, seconds = _receive(sys.stdin.buffer)
        except EOFError:
            return
        alarm(math.ceil(seconds) + _LATER)
        reaction = reply(question)
        alarm(0)
        _send(answers, reaction)


def guarded(command: Sequence[str]) -> list[str]:
    """The command that runs another and ends it, with all its descendants, when this process ends.

    It must be started by this process in a session of its own; its exit code or signal is that of `command`. `stop`
    ends it. If the system has no fork, the command is returned unchanged.

    >>> import subprocess
    >>> subprocess.run(guarded([sys.executable, "-c", "exit(3)"]), start_new_session=True).returncode
    3
    """
    if not hasattr(os, "fork"):
        return list(command)
    return [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *command]


def stop(process: subprocess.Popen[Any]) -> None:
    """End a guarded command and all its descendants, and wait for it; calling twice is harmless."""
    for _ in range(int(_PATIENCE / _PERIOD)):
        process.terminate()
        try:
            process.wait(_PERIOD)
        except subprocess.TimeoutExpired:  # a guard that was just starting may have missed the signal
            continue
        return
    process.kill()
    process.wait()


def search_path() -> dict[str, str]:
    """The environment in which a process finds the same modules as this one."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def ending(code: int) -> str:
    """The end of a process in words, by its return code, which is negative for a signal.

    >>> ending(3), ending(-9)
    ('ended the process with exit code 3', 'crashed (SIGKILL)')
    """
    return f"crashed ({signal_name(-code)})" if code < 0 else f"ended the process with exit code {code}"


def signal_name(number: int) -> str:
    """The name of a signal; real-time signals have none.

    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', 'signal 40')
    """
    known = {int(item): item.name for item in signal.Signals}
    return known.get(number, f"signal {number}")


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    """End a process started by this one; a fork leaves it to its parent."""
    if owner != os.getpid():
        return
    # A process that crashed is not killed: its own exit status counts.
    try:
        process.communicate(timeout=_REST)
    except (subprocess.TimeoutExpired, OSError, ValueError):
        stop(process)


def _send(stream: IO[bytes], message: bytes, seconds: float = 0.0) -> None:
    stream.write(_HEAD.pack(len(message), seconds))
    stream.write(message)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[bytes, float]:
    """The next message, and the seconds that its answer may take. Raises EOFError at the end of the stream."""
    head = stream.read(_HEAD.size)
    if len(head) == _HEAD.size:
        length, seconds = _HEAD.unpack(head)
        message = stream.read(length)
        if len(message) == length:
            return message, seconds
    raise EOFError
