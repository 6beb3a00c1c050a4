"""Failures of hosted delegates: ExecuTorch gets a code, its log the text, and Python the error itself."""

from __future__ import annotations

import _thread
from contextlib import suppress
from threading import local
from typing import Final

from delegatekit.plugins import fault
from delegatekit_api import DelegateKitError, ExecutionError, FormatError, RuntimeUnavailableError

from ..native.library import library

#: ExecuTorch's codes, by the class of the error.
_CODES: Final = (
    (FormatError, 0x30),  # DelegateInvalidCompatibility
    (RuntimeUnavailableError, 0x20),  # NotFound
    (MemoryError, 0x21),  # MemoryAllocationFailed
    (ExecutionError, 0x12),  # InvalidArgument
)
_INTERNAL: Final = 0x01
#: Bytes of a line of ExecuTorch's log, which cuts longer ones off.
_LINE: Final = 200
_MOST_LINES: Final = 24


class _Last(local):
    """The last failure in each thread."""

    error: BaseException | None = None


_LAST: Final = _Last()


def last_error() -> BaseException | None:
    """The last error of a delegate of ours in this thread; ExecuTorch's own error has only a code."""
    return _LAST.error


def failed(error: BaseException, where: str) -> int:
    """Log an error of a delegate and return its code. An interruption is raised again in the main thread."""
    with suppress(BaseException):
        _LAST.error = error
        log(str(error) if isinstance(error, DelegateKitError) else f"{where}: {fault(error)}")
    if isinstance(error, KeyboardInterrupt):
        _thread.interrupt_main()
    return next((code for kind, code in _CODES if isinstance(error, kind)), _INTERNAL)


def log(text: str) -> None:
    """Write a text to ExecuTorch's log."""
    for line in text.splitlines()[:_MOST_LINES]:
        data = line.encode("utf-8", errors="replace")
        for start in range(0, len(data), _LINE):
            library().dk_log(data[start : start + _LINE])
