"""Runs the probe of a plugin in a process of its own with a time limit, and tells how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import IO, Any, Final

#: Environment variable that turns first imports in a process of their own off, for sandboxes without processes.
FIRST_IMPORTS: Final = "DELEGATEKIT_FIRST_IMPORTS"
#: Bytes that are read of what a process prints: answers are short.
_MOST: Final = 1 << 20
#: Seconds that a process which has ended has for handing over what it printed.
_REST: Final = 5.0


@dataclass(frozen=True)
class Probed:
    """What a process printed on stdout, and how it ended: "" if it ended orderly."""

    lines: tuple[str, ...]
    failure: str


def probe(*arguments: str, seconds: float) -> Probed:
    """Run `delegatekit.plugins.probe` with these arguments. Raises OSError where no process can be started."""
    command = [sys.executable, "-m", f"{__package__}.probe", *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), FIRST_IMPORTS: "off"}
    # A session of its own: what a plugin started is stopped with it.
    process: Any = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    printed, said = _Reader(process.stdout, first=True), _Reader(process.stderr, first=False)
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        failure = f"took longer than {seconds:g} s and was stopped"
    else:
        failure = _ending(code)
    finally:
        _stop(process)
    lines, last = printed.text().splitlines(), said.text().strip().splitlines()[-1:]
    return Probed(tuple(lines), ": ".join([failure, *last]) if failure.startswith(("crashed", "ended")) else failure)


def _ending(code: int) -> str:
    if code < 0:
        known = {int(number): number.name for number in signal.Signals}
        return f"crashed ({known.get(-code, f'signal {-code}')})"
    return f"ended the process with exit code {code}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the process and what it started, in its session at least."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Reader:
    """Reads a pipe to its end, if it has one (the plugin's children may keep it open): keeps the first or the last."""

    def __init__(self, pipe: IO[bytes], *, first: bool) -> None:
        self._pipe, self._first = pipe, first
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """What was kept, once the process has ended."""
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
