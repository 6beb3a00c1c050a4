"""SIGTERM and SIGHUP as Ctrl-C: the command cleans up after itself before it ends."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

#: A supervisor sends the first, a terminal that is closed the second; not every system has both.
_NAMES: Final = ("SIGTERM", "SIGHUP")


@contextmanager
def terminable() -> Iterator[None]:
    """Within the block the first of these signals interrupts the main thread; others do nothing any more.

    Raises SystemExit at the end if one came, with the exit code by which shells tell of it: 128 and its number. One
    that is ignored, as under nohup, stays ignored. Does nothing in other threads than the main one.
    """
    numbers = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
    caught = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        caught = []
    came = 0

    def interrupt(number: int, frame: Any) -> None:
        nonlocal came
        if not came:
            came = number
            raise KeyboardInterrupt

    for number in caught:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        if came:  # cleaning up goes on until the interpreter has ended: the signals stay as they are
            raise SystemExit(128 + came) from None
        for number in caught:
            signal.signal(number, signal.SIG_DFL)
