"""Temporary folders, removed even if their process was killed: by the next process that makes one.

Each has a file that its owner keeps locked while it lives. A folder is only removed if it has such a file, unlocked,
and both belong to this user; no link is followed. On systems without such locks nothing is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Final

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PREFIX: Final = "delegatekit-"
_NAME: Final = re.compile(re.escape(_PREFIX) + r"[a-z0-9_]{8}")
#: The locked file.
_OWNER: Final = "delegatekit.owner"
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
#: The folders in which this process has looked for abandoned ones.
_cleaned: Final[set[str]] = set()


@contextmanager
def scratch() -> Iterator[Path]:
    """A new folder for this user alone in the folder of temporary files, removed at the end.

    The first call in a process also removes folders left by killed processes. Raises OSError if it cannot be made.

    >>> with scratch() as folder:
    ...     size = (folder / "constants.bin").write_bytes(bytes(8))
    >>> folder.exists()
    False
    """
    top = tempfile.gettempdir()
    if top not in _cleaned:
        _cleaned.add(top)
        remove_abandoned(Path(top))
    folder, handle = _made(top)
    try:
        yield folder
    finally:
        if fcntl is not None:
            _remove(folder)
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(top: Path) -> None:
    """Remove the scratch folders in a folder whose owners have died; those that cannot be removed stay."""
    if fcntl is None or os.scandir not in os.supports_fd:
        return
    found: list[Path] = []
    with suppress(OSError), os.scandir(top) as entries:
        named = [entry for entry in entries if _NAME.fullmatch(entry.name)]
        found += [Path(entry.path) for entry in named if entry.is_dir(follow_symlinks=False)]
    for folder in found:
        with suppress(OSError, RecursionError):
            _remove_if_abandoned(folder)


def _made(top: str) -> tuple[Path, int]:
    """A new folder, and its locked file."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=top))
        with suppress(FileNotFoundError):
            handle = os.open(folder / _OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
            if fcntl is not None:
                with suppress(OSError):  # a file system without locks: never locked, so never removed
                    fcntl.flock(handle, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.lstat(folder / _OWNER)):
                    return folder, handle
            os.close(handle)  # another process removed it as abandoned before it was locked


def _remove_if_abandoned(folder: Path) -> None:
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
    with _closing(inside):
        owner = os.open(_OWNER, os.O_RDWR | os.O_NONBLOCK | _NO_LINK, dir_fd=inside)
        with _closing(owner):
            status = os.fstat(owner)
            ours = {os.fstat(inside).st_uid, status.st_uid} == {os.geteuid()}
            if ours and stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                assert fcntl is not None
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _empty(inside)
                folder.rmdir()


def _remove(folder: Path) -> None:
    """Remove a folder of this process, the locked file last: if killed meanwhile, the rest can still be recognized."""
    with suppress(OSError, RecursionError):
        inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK)
        with _closing(inside):
            _empty(inside)


@contextmanager
def _closing(descriptor: int) -> Iterator[None]:
    """Close a descriptor at the end."""
    try:
        yield
    finally:
        os.close(descriptor)


def _empty(folder: int) -> None:
    """Remove the contents of an open folder, the locked file last; links themselves, not their targets."""
    with os.scandir(folder) as entries:
        found = sorted((entry.name == _OWNER, entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    for _, name, is_folder in found:
        with suppress(OSError):
            if not is_folder:
                os.unlink(name, dir_fd=folder)
                continue
            inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK, dir_fd=folder)
            with _closing(inside):
                _empty(inside)
            os.rmdir(name, dir_fd=folder)
