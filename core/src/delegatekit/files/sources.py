"""Input files: regular ones only, so that opening never blocks; mapped, or copied into memory."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

from delegatekit_api import FormatError

from ..errors.misuse import MissingFileError

#: A file to read: its path (it is mapped, not read) or its bytes.
Source: TypeAlias = str | Path | bytes | bytearray | memoryview

#: Kinds of files that are not regular, in words.
_KINDS: Final = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
#: A FIFO that replaces the file after the check must not block the call, either.
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def kind_fault(mode: int) -> str | None:
    """The fault of a file of this mode (`os.stat_result.st_mode`) if it is not regular: "is a FIFO, not a file"."""
    if stat.S_ISREG(mode):
        return None
    return f"is {next((words for test, words in _KINDS if test(mode)), 'something else')}, not a file"


def check_file(path: str | Path) -> Path:
    """The path, if it is a regular file (or a link to one). Raises FormatError; opens nothing."""
    try:
        fault = kind_fault(Path(path).stat().st_mode)
    except FileNotFoundError:
        raise MissingFileError("does not exist", where=_shown(path)) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        fault = _unreadable(error)
    if fault is not None:
        raise FormatError(fault, where=_shown(path))
    return Path(path)


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading. Raises FormatError at once for anything else."""
    path = check_file(path)  # first, because opening some devices has effects
    try:
        handle = os.open(path, _FLAGS)
        try:
            fault = kind_fault(os.fstat(handle).st_mode)
            if fault is not None:
                raise FormatError(fault, where=_shown(path))
            return os.fdopen(handle, "rb")
        except BaseException:
            os.close(handle)
            raise
    except OSError as error:
        raise FormatError(_unreadable(error), where=_shown(path)) from error


def open_view(source: Source, *, copy: bool = False) -> memoryview:
    """The bytes of a file: mapped, or with `copy` read into memory. Raises FormatError if there are none.

    A mapped file must not be truncated in place while the view is in use: the system would end the process (SIGBUS).
    Replacing it by another one, as `write_files` does, is safe.
    """
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(bytes(source) if copy else source).cast("B")
    try:
        with open_file(source) as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FormatError("the file is empty", where=str(source))
            if copy:
                return memoryview(file.read())
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:  # ValueError: a file that shrank in the meantime
        raise FormatError(_unreadable(error), where=_shown(source)) from error


def _unreadable(error: Exception) -> str:
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"


def _shown(path: str | Path) -> str:
    text = str(path)
    return text if text.isprintable() else repr(text)
