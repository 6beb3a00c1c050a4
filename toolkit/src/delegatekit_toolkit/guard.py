"""The process between an owner and a command: ends the command and all its descendants when the owner ends.

    python -I -S guard.py OWNER COMMAND [ARGUMENT ...]

OWNER is the process that started this one. However the owner ends, every process below this one is killed; the same
happens on SIGTERM, and when the command ends. The exit code or signal is the command's. If the guard itself is killed,
the system kills the command (Linux). Few modules of the standard library are imported.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

#: Linux's prctl: send a signal when the parent ends; become the parent of orphans below this process.
_PARENT_DEATH_SIGNAL: Final = 1
_CHILD_SUBREAPER: Final = 36
#: Signals on which this process ends the command.
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
#: Milliseconds between checks of the owner, if the system does not report its end.
_PERIOD: Final = 500
#: Exit code of a command that cannot be started.
_NOT_STARTED: Final = 127


def main(owner: int, command: Sequence[str]) -> NoReturn:
    """Run the command, and end with its status."""
    signals = _signals()
    prctl = _prctl()
    prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    watched = _watched(owner)
    guard = os.getpid()
    worker = os.fork()
    if not worker:
        _become(command, guard, prctl)
    _let_go(kept=(*signals, *watched))
    status = _ended(worker, owner, signals[0], watched)
    _end_like(_ended_all(worker) if status is None else status, worker)


def _signals() -> tuple[int, int]:
    """The ends of a pipe that reports signals."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, *_ENDING):
        signal.signal(number, lambda *_: None)
    return reader, writer


def _prctl() -> Any:
    if sys.platform != "linux":
        return lambda *_: None
    import ctypes

    return ctypes.CDLL(None).prctl


def _watched(owner: int) -> tuple[int, ...]:
    """A descriptor that becomes readable when the owner ends, if the system has one."""
    try:
        return (os.pidfd_open(owner),)
    except (AttributeError, OSError):
        return ()


def _become(command: Sequence[str], guard: int, prctl: Any) -> NoReturn:
    """Turn this child into the command."""
    try:
        os.setpgid(0, 0)
        prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() == guard:
            for number in (signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _let_go(kept: Sequence[int]) -> None:
    """Close the command's pipes: its readers and writers then get end-of-file from the system."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    for name in os.listdir("/dev/fd"):  # noqa: PTH208
        if int(name) > 2 and int(name) not in kept:
            with suppress(OSError):
                os.close(int(name))


def _ended(worker: int, owner: int, signals: int, watched: Sequence[int]) -> int | None:
    """The command's status when it has ended; None if it must be ended."""
    poll = select.poll()
    for descriptor in (signals, *watched):
        poll.register(descriptor, select.POLLIN)
    while os.getppid() == owner:
        poll.poll(None if watched else _PERIOD)
        with suppress(BlockingIOError):
            if not set(os.read(signals, 1 << 12)).isdisjoint(_ENDING):
                return None
        for process, status in _reaped():
            if process == worker:
                return status
    return None


def _reaped() -> Iterator[tuple[int, int]]:
    """The children that have ended, each once, with their statuses."""
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found


def _ended_all(worker: int) -> int | None:
    """Kill everything below this process until nothing is left; the worker's status, if it was reaped here.

    A killed process's children are reparented to this process (Linux); elsewhere the worker's group is killed.
    """
    status: int | None = None
    if sys.platform != "linux":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            process, found = os.waitpid(-1, os.WNOHANG)
            if not process:
                killed = [child for child in _children() if _killed(child)]
                if not killed and (sys.platform == "linux" or status is not None):
                    break  # those that are left belong to other users
                # Whichever ends first: others may have started meanwhile.
                process, found = os.waitpid(-1, 0)
            if process == worker:
                status = found
    return status


def _killed(process: int) -> bool:
    try:
        os.kill(process, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _children() -> Iterator[int]:
    """The processes whose parent is this one (Linux)."""
    this = str(os.getpid())
    for name in os.listdir("/proc") if sys.platform == "linux" else ():  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                # "NUMBER (NAME) STATE PARENT": the name may contain spaces and brackets.
                if file.read().rpartition(b")")[2].split()[1].decode() == this:
                    yield int(name)


def _end_like(status: int | None, worker: int) -> NoReturn:
    """End as the command did, after all its descendants."""
    _ended_all(worker)
    if status is None:
        os._exit(1)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(ImportError, OSError, ValueError):
            import resource

            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
