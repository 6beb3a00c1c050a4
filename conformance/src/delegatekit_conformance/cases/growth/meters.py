"""Meters of process resources: memory by its allocators, objects, files, threads, processes; and of its CPU time."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from . import gpu

_PROC = Path("/proc")


@dataclass(frozen=True)
class Meter:
    """A resource that can grow, and its noise level."""

    name: str
    #: Less than this for each unit of the history is noise, and so is less than this in all.
    each: float
    all: float
    #: True if the system has few of them.
    scarce: bool = False


#: The most informative about the cause first.
METERS = (
    Meter("open files", 0.002, 3, scarce=True),
    Meter("child processes", 0.002, 2, scarce=True),
    Meter("threads", 0.002, 3, scarce=True),
    Meter("temporary files", 0.002, 3),
    Meter("bytes of GPU memory", 64, 256 * 1024),
    Meter("Python objects", 0.02, 80),
    Meter("bytes of native memory", 8, 24 * 1024),
    Meter("bytes of the process' private memory", 64, 512 * 1024),
    Meter("bytes of its child processes' private memory", 64, 512 * 1024),
)


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library, 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


@cache
def _mallinfo() -> Callable[[], Any] | None:
    """The C library's own account of what `malloc` has given out, in all its arenas; None where it has none."""
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _Mallinfo2
        function.argtypes = ()
    return function


def state(folder: Path) -> Mapping[str, float]:
    """Resources of the process and its children now, by the meter's name, as far as the platform reports them.

    Garbage is collected first. `folder` is the one for temporary files.
    """
    gc.collect()
    found: dict[str, float] = {"Python objects": sys.getallocatedblocks(), **counted(folder)}
    mallinfo = _mallinfo()
    if mallinfo is not None:
        info = mallinfo()
        found["bytes of native memory"] = info.uordblks + info.hblkhd
    used = gpu.used()
    if used is not None:
        found["bytes of GPU memory"] = used
    if not sys.platform.startswith("linux"):
        return found
    children = list(descendants(os.getpid()))
    found["bytes of the process' private memory"] = _private("self")
    if children:
        found["bytes of its child processes' private memory"] = sum(_private(pid) for pid in children)
    return found


def counted(folder: Path) -> Mapping[str, int]:
    """The counted ones of these, of which the system may run out."""
    found = {"temporary files": sum(1 for _ in folder.rglob("*"))}
    if not sys.platform.startswith("linux"):
        return found | {"threads": threading.active_count()}
    children = list(descendants(os.getpid()))
    return found | {
        "open files": _entries("self", "fd") + sum(_entries(pid, "fd") for pid in children),
        "threads": _entries("self", "task") + sum(_entries(pid, "task") for pid in children),
        "child processes": len(children),
    }


def _entries(process: int | str, what: str) -> int:
    try:
        return sum(1 for _ in (_PROC / str(process) / what).iterdir())
    except OSError:  # it ended meanwhile
        return 0


def _private(process: int | str) -> int:
    """Bytes that no other process shares, in memory or swapped out."""
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    kibibytes = [int(line.split()[1]) for line in lines if line.startswith(("Private_Dirty:", "Swap:"))]
    return sum(kibibytes) * 1024


def descendants(process: int) -> Iterator[int]:
    """The processes that this one started, and those that they started, on Linux."""
    with suppress(OSError):
        for task in (_PROC / str(process) / "task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


def seconds() -> float:
    """CPU seconds of this process and of its child processes, ended ones too, as far as the system reports them."""
    return time.process_time() + _children_seconds()


def _children_seconds() -> float:
    if not sys.platform.startswith("linux"):
        return 0.0
    import resource

    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    nanoseconds = 0
    for process in descendants(os.getpid()):
        with suppress(OSError, ValueError, IndexError):
            for task in (_PROC / str(process) / "task").iterdir():
                nanoseconds += int((task / "schedstat").read_text().split()[0])
    return ended.ru_utime + ended.ru_stime + nanoseconds * 1e-9


def bytecodes(action: Callable[[], Any]) -> int:
    """The number of Python bytecode instructions of an action in this thread: no other load changes it.

    Zero while another tracer is active, which would be replaced.
    """
    if sys.gettrace() is not None:
        action()
        return 0
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
        elif event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return trace

    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(None)
    return count


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder of its own for the temporary files of this process, and of the programs that it starts meanwhile."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    with tempfile.TemporaryDirectory(prefix="delegatekit-growth-", ignore_cleanup_errors=True) as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = before[1]
            if before[0] is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before[0]


@contextmanager
def still_heap() -> Iterator[None]:
    """Excludes present objects from garbage collection within the block."""
    frozen = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()
