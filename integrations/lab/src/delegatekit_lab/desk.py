"""Who has a board: one user at a time, by use or by reservation; others wait in a queue or are told who has it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import Any, Final

from delegatekit_api import RuntimeUnavailableError

#: Seconds that a board stays with a user after the last connection: processes of one run follow one another.
LINGER: Final = 5.0
#: The longest reservation in seconds.
LONGEST: Final = 24 * 3600.0


@dataclass(eq=False)
class Lease:
    """A user who has the board."""

    #: The name in the certificate, and the secret of the user's processes.
    key: tuple[str, str]
    user: str
    since: float
    #: Connections now, and the time (of `time.time`) until which the board stays with the user without any.
    sessions: int = 0
    until: float = 0.0
    reserved: bool = False
    #: What the server keeps for the user.
    kept: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """The user and until when, in words."""
        since = time.strftime("%H:%M:%S", time.localtime(self.since))
        if self.reserved:
            until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.until))
            return f"{self.user}, since {since}, reserved until {until}"
        return f"{self.user}, since {since}, until it is done"


class Desk:
    """Gives a board to one user at a time. Its methods may be called from several threads."""

    def __init__(
        self, board: str, *, ended: Callable[[Lease], None] = lambda lease: None, linger: float = LINGER
    ) -> None:
        """`ended` is called when a user has the board no more."""
        self._board, self._ended, self._linger = board, ended, linger
        self._change = Condition()
        self._holder: Lease | None = None
        self._queue: list[object] = []

    @contextmanager
    def place(self, key: tuple[str, str], user: str, wait: float) -> Iterator[Lease]:
        """The board, as one of the user's connections. Raises RuntimeUnavailableError, which says who has it."""
        lease = self._enter(key, user, wait)
        try:
            yield lease
        finally:
            with self._change:
                lease.sessions -= 1
                if not lease.sessions:
                    lease.until = max(lease.until, time.time() + self._linger)
                    self._change.notify_all()

    def reserve(self, key: tuple[str, str], user: str, seconds: float, wait: float) -> Lease:
        """Keep the board for a user, from now on. Raises RuntimeUnavailableError."""
        with self.place(key, user, wait) as lease, self._change:
            lease.until = max(time.time() + min(max(seconds, 0.0), LONGEST), lease.until * lease.reserved)
            lease.reserved = True
        return lease

    def release(self, key: tuple[str, str]) -> None:
        """End a user's reservation. Raises RuntimeUnavailableError if it is another's, or there is none."""
        with self._change:
            holder = self._current()
            if holder is None or holder.key != key or not holder.reserved:
                raise RuntimeUnavailableError(
                    f"is not reserved by this user: {holder or 'nobody has it'}", where=self._board
                )
            holder.reserved, holder.until = False, 0.0
            self._current()
            self._change.notify_all()

    def tell(self) -> tuple[str, int]:
        """Who has the board, in words, and how many wait."""
        with self._change:
            return str(self._current() or ""), len(self._queue)

    def _enter(self, key: tuple[str, str], user: str, wait: float) -> Lease:
        ticket, end = object(), time.monotonic() + wait
        with self._change:
            self._queue.append(ticket)
            try:
                while True:
                    holder = self._current()
                    if holder is not None and holder.key == key:
                        break
                    if holder is None and self._queue[0] is ticket:
                        holder = self._holder = Lease(key, user, time.time())
                        break
                    left = end - time.monotonic()
                    if left <= 0:
                        who = holder or "the user who is first in the queue"
                        raise RuntimeUnavailableError(
                            f"is taken by {who} ({len(self._queue) - 1} others wait)",
                            where=self._board,
                            hint="DELEGATEKIT_LAB_WAIT is the number of seconds to wait",
                        )
                    self._change.wait(min(left, 1.0))
                holder.sessions += 1
                return holder
            finally:
                self._queue.remove(ticket)
                self._change.notify_all()

    def _current(self) -> Lease | None:
        """The holder, unless the time is over."""
        holder = self._holder
        if holder is not None and not holder.sessions and time.time() >= holder.until:
            self._holder = None
            self._ended(holder)
        return self._holder
