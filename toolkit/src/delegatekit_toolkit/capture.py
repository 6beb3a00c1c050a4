"""Redirects the stdout of vendors' libraries, since a program may write JSON on it, and filters their stderr."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Iterator

#: The descriptor belongs to the whole process: one thread at a time.
_LOCK = threading.RLock()


@contextlib.contextmanager
def quiet(*unwanted: str, descriptor: int = 1, lines: list[str] | None = None) -> Iterator[None]:
    """Redirect file descriptor 1 to stderr inside the block, without lines that begin with one of `unwanted`.

    With `descriptor=2`, stderr is filtered instead. The lines that are kept are appended to `lines`. The descriptor
    belongs to the whole process: calls of several threads wait for each other; in one thread they may be nested. A
    descriptor that is closed stays closed.

    >>> import os
    >>> with quiet("Warning:"):
    ...     _ = os.write(1, b"Warning: version 5\\nreading\\n")  # "reading" goes to stderr
    """
    with _LOCK, tempfile.TemporaryFile() as printed:
        _flush()
        try:
            kept = os.dup(descriptor)
        except OSError:
            yield
            return
        try:
            os.dup2(printed.fileno(), descriptor)
            yield
        finally:
            _flush()
            os.dup2(kept, descriptor)
            os.close(kept)
            printed.seek(0)
            for line in printed.read().decode(errors="replace").splitlines():
                if not line.startswith(unwanted):
                    print(line, file=sys.stderr)
                    if lines is not None:
                        lines.append(line)


def _flush() -> None:
    """Flush the buffers of Python and the C library."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)
