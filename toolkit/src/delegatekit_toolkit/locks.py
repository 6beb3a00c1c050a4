"""Locks that distinguish the files of a running writer from those that a killed one left."""

from __future__ import annotations

import os
from contextlib import suppress
from types import ModuleType

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # a system without such locks: then no files count as leftovers
    fcntl = None


def lock(handle: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed, or its process ends; does nothing if another process has locked it.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     lock(file.fileno())
    ...     unlocked(file.name)
    False
    """
    if fcntl is not None:
        with suppress(OSError):
            fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)


def unlocked(path: str) -> bool:
    """True if no process has locked the file (and it can be opened).

    >>> unlocked("/there is no such file")
    False
    """
    if fcntl is None:
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
