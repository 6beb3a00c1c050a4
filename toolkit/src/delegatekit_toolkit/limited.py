"""Commands in processes of their own, with a time limit, and how each ended.

Code that may crash, hang, print or corrupt the process (new plugins, vendors' compilers and
runtimes) is isolated here. Each process starts from scratch, and ends, with all that it has started, when
this one ends, however that happens.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, Final

from .processes import ending as ending_of
from .processes import guarded, search_path, stop

#: Limit of the bytes read from a process's output: answers are short.
_MOST: Final = 1 << 20
#: Seconds that an exited process has for delivering its output.
_REST: Final = 5.0


@dataclass(frozen=True)
class Ended:
    """The output of a process, and how it ended."""

    #: The lines on stdout, from the first on; none if stdout was joined with stderr.
    lines: tuple[str, ...]
    #: The last lines on stderr, or on both.
    last: tuple[str, ...]
    #: "ended the process with exit code 3", "crashed (SIGSEGV)" or that it timed out.
    ending: str
    code: int | None

    @property
    def failure(self) -> str:
        """The ending, with the last line of its stderr if it ended by itself."""
        spoke = self.last[-1:] if self.code is not None else ()
        return ": ".join([self.ending, *spoke])


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a Python module.

    >>> module("timeit", "pass")[1:]
    ['-m', 'timeit', 'pass']
    """
    return [sys.executable, "-m", name, *arguments]


class Process:
    """A process that runs a command: started when it is made, waited for once.

    >>> ended = Process([sys.executable, "-c", "print('done'); exit(3)"]).wait(60)
    >>> ended.lines, ended.failure
    (('done',), 'ended the process with exit code 3')
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        joined: bool = False,
        files: Sequence[int] = (),
        folder: Path | None = None,
    ) -> None:
        """Start a command, with this process' import path.

        `environment` has variables beside those of this process. `joined` keeps stdout and stderr together, in the
        order of printing. `files` are descriptors that it gets under the same numbers, `folder` is where it works.
        Raises OSError where no process can be started.
        """
        process: Any = subprocess.Popen(
            guarded(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if joined else subprocess.PIPE,
            env=search_path() | dict(environment or {}),
            start_new_session=True,
            pass_fds=files,
            cwd=folder,
        )
        self._process = process
        self._printed = _Reader(process.stdout, first=not joined)
        self._said = self._printed if joined else _Reader(process.stderr, first=False)
        self._joined = joined

    def wait(self, seconds: float | None) -> Ended:
        """Wait for its end; after `seconds` it is stopped."""
        code: int | None = None
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            ending = f"took longer than {seconds:g} s and was stopped"
        else:
            ending = ending_of(self._process.returncode)
        finally:
            self.stop()
        lines = () if self._joined else tuple(self._printed.text().splitlines())
        return Ended(lines, tuple(self._said.text().strip().splitlines()), ending, code)

    def stop(self) -> None:
        """Kill it and all that it has started."""
        stop(self._process)


class Processes:
    """Processes that are ended together; its methods may be called from several threads."""

    def __init__(self) -> None:
        self._running: set[Process] = set()
        self._stopped = Event()

    def run(self, command: Sequence[str], seconds: float | None, environment: Mapping[str, str]) -> Ended | None:
        """The ending of a command, stdout and stderr joined; None if stopped before. Arguments as of `Process`."""
        if self._stopped.is_set():
            return None
        process = Process(command, environment=environment, joined=True)
        self._running.add(process)
        if self._stopped.is_set():  # meanwhile
            process.stop()
        try:
            return process.wait(seconds)
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """End all, and start no others."""
        self._stopped.set()
        for process in tuple(self._running):
            process.stop()


class _Reader:
    """Reads a pipe to its end, if it has one (the plugin's children may keep it open): keeps the first or the last."""

    def __init__(self, pipe: IO[bytes], *, first: bool) -> None:
        self._pipe, self._first = pipe, first
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """The kept text, once the process has ended."""
        self._thread.join(_REST)
        return b"".join(tuple(self._kept)).decode(errors="replace")

    def _read(self) -> None:
        while chunk := os.read(self._pipe.fileno(), 1 << 16):
            if self._first and self._size > _MOST:
                continue
            self._kept.append(chunk)
            self._size += len(chunk)
            while not self._first and self._size > _MOST:
                self._size -= len(self._kept.popleft())
        self._pipe.close()
