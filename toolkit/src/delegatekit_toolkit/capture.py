"""Keeps stdout free of what a vendor's library prints there, as a program may write JSON on it; and stderr of noise."""

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
    """What is printed inside on file descriptor 1 goes to stderr; lines that begin with one of `unwanted` are dropped.

    With `descriptor=2` it is what is printed on stderr that is filtered. The lines that go there are added to `lines`.
    The descriptor belongs to the whole process: calls of several threads wait for each other; in one thread they may be
    nested. One that is closed stays closed.

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
    """Write out what Python and the C library still hold back."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).fflush(None)
