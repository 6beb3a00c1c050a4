"""Between files and bytes: maps a file for reading, and writes several files, all or none."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

from delegatekit_api import FormatError

#: A file to read: its path (it is mapped, not read) or its bytes.
Source: TypeAlias = str | Path | bytes | bytearray | memoryview


def open_view(source: Source) -> memoryview:
    """The bytes of a file. Raises FormatError if it cannot be read or is empty."""
    if isinstance(source, bytes | bytearray | memoryview):
        return memoryview(source).cast("B")
    path = Path(source)
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise FormatError("the file is empty", where=str(path))
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except ValueError as error:  # a path with a zero byte, or a file that shrank meanwhile
        raise FormatError(f"cannot be read: {error}", where=repr(str(path))) from error


def check_place(path: Path) -> None:
    """Raise FormatError if there cannot be a file of this name, as in a folder that does not exist."""
    if not path.parent.is_dir():
        raise FormatError("the folder does not exist", where=str(path), hint=f"create {path.parent} first")
    if path.is_dir():
        raise FormatError("is a folder, not a file", where=str(path), hint="choose another name")


def write_files(writers: Mapping[Path, Callable[[BinaryIO], None]]) -> None:
    """Write each path with its function: every file whole, or none of them (what was there before stays).

    All are written under other names first and take their places at the end, in the order given. Should that fail
    half-way, the old files are put back.
    """
    for path in writers:
        check_place(path)
    temporary: dict[Path, Path] = {}
    try:
        for path, writer in writers.items():
            temporary[path] = _reserve(path, ".part")
            with temporary[path].open("wb") as file:
                writer(file)
                file.flush()
                os.fsync(file.fileno())
        _put_in_place(temporary)
    finally:
        for left in temporary.values():
            left.unlink(missing_ok=True)


def _reserve(path: Path, suffix: str) -> Path:
    """A new, empty, hidden file beside `path`, as readable as the user's umask says."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=suffix)
    os.close(handle)
    mask = os.umask(0)
    os.umask(mask)
    Path(name).chmod(0o666 & ~mask)
    return Path(name)


def _put_in_place(written: Mapping[Path, Path]) -> None:
    if len(written) == 1:
        ((path, temporary),) = written.items()
        temporary.replace(path)
        return
    kept: list[Path] = []
    undo: list[Callable[[], object]] = []
    try:
        for path, temporary in written.items():
            if path.exists():
                kept.append(_reserve(path, ".old"))
                path.replace(kept[-1])
                undo.append(partial(kept[-1].replace, path))
            temporary.replace(path)
            undo.append(partial(path.unlink, missing_ok=True))
    except BaseException:
        for step in reversed(undo):
            with suppress(OSError):
                step()
        raise
    finally:
        for old in kept:
            old.unlink(missing_ok=True)
