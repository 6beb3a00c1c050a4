"""Output files: each whole, several together all or none; and checked before the work that makes them.

The rules are the same for every command. Only regular files are replaced, never a device, FIFO or folder. Symbolic
links are followed. A file that exists keeps its mode and, where the system allows it, its owner, and is not replaced if
it is write-protected. What a killed writer left behind is removed by the next one that writes the same file.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias, cast

from delegatekit_api import FormatError
from delegatekit_toolkit.locks import lock, unlocked

from ..errors.misuse import OutputError
from .sources import kind_fault

#: Writes a file's content, front to back.
Writer: TypeAlias = Callable[[BinaryIO], object]

#: Characters of the file's own name that names of temporary files begin with: together they have at most 255 bytes.
_LONGEST: Final = 56


@dataclass(frozen=True)
class _Target:
    """A path as it was given, the file that it leads to, and its current state."""

    given: Path
    file: Path
    now: os.stat_result | None


def check_outputs(*paths: str | Path | None, inputs: Iterable[str | Path | None] = ()) -> None:
    """Check that files can be written to these paths, before the work begins; None stands for a path not given.

    Raises OutputError (a FormatError) for a path that `write_files` would refuse, for two paths that are the same file,
    and for a path that is the same file as one of the `inputs`, whatever links lead to it: what is read would be lost.
    """
    read = [found for path in inputs if path is not None and (found := _read(Path(path))) is not None]
    for target in _targets(Path(path) for path in paths if path is not None):
        same = next((path for path, status in read if target.now and os.path.samestat(target.now, status)), None)
        if same is not None:
            name = "an input" if same == target.given else f"the input {same}"
            raise OutputError(f"is {name} of this command", where=str(target.given), hint="choose another name")
        with _reporting(target.given), _part(target):
            pass


def _read(path: Path) -> tuple[Path, os.stat_result] | None:
    """A file to be read, with its current state; None if there is none, which the reader will report."""
    try:
        return path, path.stat()
    except (OSError, ValueError):
        return None


def write_files(writers: Mapping[Path, Writer]) -> None:
    """Write each path with its function: every file whole, or none of them (old content stays).

    All are written under other names first and renamed at the end, in the order given. If that fails
    half-way, the old files are restored. Raises FormatError for a path that cannot be written, and what writers raise.
    """
    with ExitStack() as stack:
        written: list[tuple[_Target, Path]] = []
        for target, writer in zip(_targets(writers), writers.values(), strict=True):
            with _reporting(target.given):
                _remove_leftovers(target.file)
                handle, part = stack.enter_context(_part(target))
                with open(handle, "wb", closefd=False) as file:
                    writer(file)
                    file.flush()
                    os.fsync(handle)
                written.append((target, part))
        _put_in_place(written)


def write_text(path: Path, text: str) -> None:
    """Write a text file by the rules of `write_files`, in UTF-8 and with the line ends that the text has."""
    write_files({path: lambda file: file.write(text.encode())})


def shielded(save: Writer) -> Writer:
    """A writer for code that ends the process if the file raises, as PyTorch's archive writer does on a full disk.

    That code sees no error; an error is raised when it has finished.
    """

    def writer(file: BinaryIO) -> None:
        shield = _Shield(file)
        try:
            save(cast(BinaryIO, shield))
        finally:
            if shield.error is not None:
                raise shield.error

    return writer


class _Shield(io.RawIOBase):
    """A file that only grows: passes on writes, and remembers the first error instead of raising it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = 0
        self.error: BaseException | None = None

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        """Archive writers seek to the start when they have finished: nothing is written after that."""
        return offset

    def tell(self) -> int:
        return self._size

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        size = memoryview(data).nbytes
        self._size += size
        if self.error is None:
            try:
                self._file.write(data)
            except BaseException as error:  # no exception may pass through the writing code
                self.error = error
        return size


def _targets(paths: Iterable[Path]) -> list[_Target]:
    """The files that the paths lead to. Raises OutputError for one that must not be written, or is given twice."""
    found: list[_Target] = []
    for path in paths:
        with _reporting(path):
            target = _target(path)
        same = next((other for other in found if _is_same(other, target)), None)
        if same is not None:
            raise OutputError(f"is the same file as {same.given}", where=str(path), hint="give each file its own name")
        found.append(target)
    return found


def _is_same(one: _Target, other: _Target) -> bool:
    if one.now is not None and other.now is not None:
        return os.path.samestat(one.now, other.now)
    return one.file == other.file


def _target(path: Path) -> _Target:
    try:
        file = Path(os.path.realpath(path))
    except ValueError as error:  # a zero byte
        raise OutputError(f"is not a path: {error}", where=repr(str(path))) from error
    if not file.parent.is_dir():
        raise OutputError("the folder does not exist", where=str(path), hint=f"create {file.parent} first")
    try:
        now = path.stat()
    except FileNotFoundError:
        return _Target(path, file, None)
    fault = kind_fault(now.st_mode)
    if fault is not None:
        raise OutputError(fault, where=str(path), hint="choose another name")
    # Root may write everything; a file without any write permission is protected from root, too.
    if not now.st_mode & 0o222 or not os.access(file, os.W_OK):
        raise OutputError(
            "is write-protected", where=str(path), hint="allow writing (chmod u+w), or choose another name"
        )
    return _Target(path, file, now)


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    """Name the file in errors of the system."""
    try:
        yield
    except OSError as error:
        raise FormatError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


# -- temporary files ---------------------------------------------------------------------------------------------------


@contextmanager
def _part(target: _Target) -> Iterator[tuple[int, Path]]:
    """A new, hidden file beside the target, open, locked, with the target's mode; removed unless it was renamed."""
    handle, path = _create(target.file)
    try:
        if target.now is not None:
            _make_alike(path, target.now)
        yield handle, path
    finally:
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                path.unlink()
        os.close(handle)


def _create(file: Path) -> tuple[int, Path]:
    while True:
        path = _hidden(file, ".part")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        handle = os.open(path, flags, 0o666)
        lock(handle)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.lstat(path)):
                return handle, path
        os.close(handle)  # another writer removed it as a leftover before it was locked


def _hidden(file: Path, suffix: str) -> Path:
    return file.with_name(f".{file.name[:_LONGEST]}.{secrets.token_hex(4)}{suffix}")


def _make_alike(path: Path, now: os.stat_result) -> None:
    with suppress(OSError, AttributeError):  # only root may give files away, and only some systems know owners
        os.chown(path, now.st_uid, now.st_gid)
    path.chmod(stat.S_IMODE(now.st_mode))


def _remove_leftovers(file: Path) -> None:
    """Remove the files of writers of this file that no longer run."""
    name = re.compile(re.escape(f".{file.name[:_LONGEST]}.") + r"[0-9a-f]{8}\.(part|old)")
    for entry in os.scandir(file.parent):
        if name.fullmatch(entry.name) and entry.is_file(follow_symlinks=False) and unlocked(entry.path):
            with suppress(OSError):
                Path(entry.path).unlink()


# -- taking their places -----------------------------------------------------------------------------------------------


def _put_in_place(written: Sequence[tuple[_Target, Path]]) -> None:
    with ExitStack() as kept:
        undo: list[Callable[[], object]] = []
        try:
            for target, part in written:
                with _reporting(target.given):
                    if len(written) == 1:
                        pass  # nothing can fail after it
                    elif target.file.exists():
                        undo.append(partial(kept.enter_context(_kept(target.file)).replace, target.file))
                    else:
                        undo.append(partial(target.file.unlink, missing_ok=True))
                    part.replace(target.file)
        except BaseException:
            for step in reversed(undo):
                with suppress(OSError):
                    step()
            raise


@contextmanager
def _kept(path: Path) -> Iterator[Path]:
    """A second link to a file, or a copy if the file system has no links; removed at the end."""
    old = _hidden(path, ".old")
    with ExitStack() as stack:
        with suppress(OSError):  # a file that cannot be read cannot be locked
            lock(stack.enter_context(path.open("rb")).fileno(), shared=True)
        stack.callback(old.unlink, missing_ok=True)
        try:
            os.link(path, old)
        except OSError:
            shutil.copy2(path, old)
        yield old
