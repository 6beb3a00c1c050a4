"""Distinguishes a process that waits for something that never comes from one that gets little of a busy machine."""

from __future__ import annotations

import time

import psutil

#: A process that can run gets some CPU time within this many seconds, however busy the machine is.
_WINDOW = 5.0


class Idle:
    """Detects that a process and its descendants have used no CPU time at all for a while."""

    def __init__(self, process: int, seconds: float) -> None:
        """`process` is its number; it is idle after `seconds` without any CPU time, and 5 at least."""
        self._process = process
        self._seconds = max(seconds, _WINDOW)
        self._used = -1.0
        self._since = time.monotonic()

    def look(self) -> bool:
        """True if it has been idle for all this time. To be called now and then; an ended process is not idle."""
        used = _used(self._process)
        if used is None or used != self._used:
            self._used, self._since = (-1.0 if used is None else used), time.monotonic()
            return False
        return time.monotonic() - self._since >= self._seconds


def _used(process: int) -> float | None:
    """CPU seconds of the process and its descendants; None if unknown."""
    try:
        root = psutil.Process(process)
        total = 0.0
        for member in (root, *root.children(recursive=True)):
            times = member.cpu_times()
            # With those of children that have ended: any activity changes the sum.
            total += times.user + times.system + times.children_user + times.children_system
        return total
    except psutil.Error:
        return None
