"""Ends the process when a call takes too long, also inside native code that never comes back."""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Final

from .console import remark

#: The engine stops by itself, between two instructions. If it does not in so many seconds more, the process ends.
_GRACE: Final = 0.5


@contextmanager
def ended_after(seconds: float | None, where: str) -> Iterator[None]:
    """End the process with exit code 1 if the block takes longer; None for no limit."""
    if seconds is None:
        yield
        return

    def end() -> None:
        remark(f"error: {where}: took longer than {seconds:g} s and could not be interrupted")
        sys.stderr.flush()
        os._exit(1)

    timer = Timer(seconds + _GRACE, end)
    timer.daemon = True
    timer.start()
    # The timer needs the interpreter, which native code may keep; this one does not, but says less.
    _arm(seconds + 3 * _GRACE)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


def _arm(seconds: float) -> None:
    try:
        faulthandler.dump_traceback_later(seconds, exit=True)
    except (ValueError, AttributeError, OSError):  # stderr is no file
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)
