"""Progress of long work for those who wait for it: the stage, how much of it is done, and the time that is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from types import TracebackType

__all__ = ["Waiting"]

#: Seconds of a stage before its rate says anything about the time that is left.
_SETTLED = 1.0


class Waiting:
    """Tells the stage of long work, from a thread of its own, so that a stage that reports nothing is told as well.

    `tell` is called with a text like "partition forward, 12 s" or "lower forward 30/90, 20 s, about 40 s left": once
    `after` seconds have passed, then at each stage that has lasted `brief` seconds, and within a stage every `every`
    seconds, and where more of it is done, but not within `pause` seconds. It must not raise.

    >>> told = []
    >>> with Waiting(told.append, after=0.0, every=9.0) as waiting:
    ...     waiting.begin("lower forward")
    ...     waiting.moved(1, 4)
    >>> told
    ['lower forward, 0 s', 'lower forward 1/4, 0 s']
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        *,
        after: float,
        every: float,
        pause: float = 0.0,
        brief: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._tell, self._after, self._every, self._pause, self._clock = tell, after, every, pause, clock
        self._brief, self._is_new = brief, False
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._stage, self._done, self._total = "", 0, 0
        self._start = self._stage_start = self._told = clock()
        self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)

    def begin(self, stage: str) -> None:
        """A stage begins."""
        with self._lock:
            self._stage, self._done, self._total, self._stage_start = stage, 0, 0, self._clock()
            self._is_new = True
            if not self._brief:
                self._say()

    def moved(self, done: int, total: int) -> None:
        """So much of so much of the stage is done."""
        with self._lock:
            self._done, self._total = done, total
            if self._clock() - self._told >= self._pause:
                self._say()

    def text(self) -> str:
        """The stage, how much of it is done, its seconds, and those that are left if that can be told."""
        spent = self._clock() - self._stage_start
        count = f" {self._done}/{self._total}" if self._total else ""
        left = ""
        if spent >= _SETTLED and 0 < self._done < self._total:
            left = f", about {duration(spent * (self._total - self._done) / self._done)} left"
        return f"{self._stage}{count}, {duration(spent)}{left}"

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _say(self) -> None:
        """Tell the stage, if it is time for it; the lock is held."""
        now = self._clock()
        if now - self._start >= self._after and self._stage:
            self._told, self._is_new = now, False
            self._tell(self.text())

    def _watch(self) -> None:
        wait = self._after
        while not self._ended.wait(wait):
            with self._lock:
                now = self._clock()
                since, lasting = now - self._told, self._is_new and now - self._stage_start >= self._brief
                if since >= self._every or self._told == self._start or lasting:
                    self._say()
                    since = 0.0
            wait = max(0.05, self._every - since)
            if self._brief:
                wait = min(wait, self._brief)


def duration(seconds: float) -> str:
    """A time that someone waits.

    >>> duration(9.6), duration(135.0), duration(7300.0)
    ('10 s', '2 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
