"""Chooses how workers start: forked from one warm server process (`warm`), or, where that is not safe, spawned."""

from __future__ import annotations

import multiprocessing
import os
import sys
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

#: Modules that the server imports before it forks the first worker.
_WARM = f"{__package__}.warm"
#: Seconds that the server may take for it.
_PATIENCE = 300.0


@cache
def starter() -> BaseContext:
    """The start method of workers in this process.

    On Linux the first call starts the server, which lives as long as this process and the workers: forking a worker
    takes milliseconds, starting and warming one up takes seconds. Other systems do not fork safely what torch has
    loaded. Nor does a server with threads, which a library that torch loads may have started.
    """
    if sys.platform == "linux":
        forking = multiprocessing.get_context("forkserver")
        forking.set_forkserver_preload([_WARM])
        probe = forking.Process(target=_tell_threads_of_server)
        probe.start()
        probe.join(_PATIENCE)
        if probe.exitcode == 1:
            return forking
    return multiprocessing.get_context("spawn")


def _tell_threads_of_server() -> None:
    """End this process with the number of threads of the one that it was forked from."""
    os._exit(min(threads(os.getppid()), 100))


def threads(process: int) -> int:
    """The number of threads of a process of this machine (Linux)."""
    return len(list(Path(f"/proc/{process}/task").iterdir()))
