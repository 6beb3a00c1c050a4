"""Tests whether a plugin survives its import: in a separate process when it is new or changed, then remembered.

An import can end the process, crash it or hang, which cannot be contained in this process. Exceptions are
contained by the importing code.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import importlib_metadata as metadata

from delegatekit_toolkit.limited import Ended, Process, module

from . import remembered
from .declared import owner

#: Environment variable that disables first imports in a separate process, for sandboxes without processes.
FIRST_IMPORTS: Final = "DELEGATEKIT_FIRST_IMPORTS"
#: Time limit of a plugin's import in seconds.
TIME_LIMIT: Final = 60.0
#: The packages that a plugin depends on.
_OURS: Final = ("delegatekit", "delegatekit_api", "delegatekit_toolkit")
#: Limit of the files of a package that are examined.
_MOST_FILES: Final = 1000


def refusal(entry_point: metadata.EntryPoint) -> str | None:
    """The reason why a plugin must not be imported in this process: its death in another; None if it survives.

    Costs a process for a plugin that was not imported since it changed, otherwise a few calls of `stat`.
    """
    if _module(entry_point) in sys.modules or os.environ.get(FIRST_IMPORTS) == "off" or not _has_interpreter():
        return None
    key, state = _key(entry_point), _state(entry_point)
    died = remembered.recall(key, state)
    if died is None:
        try:
            probed = probe("import", entry_point.group, entry_point.name, entry_point.value, seconds=TIME_LIMIT)
        except OSError:  # no processes here
            return None
        died = "" if probed.lines else probed.failure
        remembered.remember(key, state, died)
    return died or None


def probe(*arguments: str, seconds: float) -> Ended:
    """Run `delegatekit.plugins.probe` with these arguments. Raises OSError where no process can be started."""
    return Process(module(f"{__package__}.probe", *arguments), environment={FIRST_IMPORTS: "off"}).wait(seconds)


def state_of(entry_point: metadata.EntryPoint) -> str:
    """A digest that changes with the plugin and its dependencies, by their files on disk."""
    ours = (f"{path} {size} {changed}" for package in _OURS for path, size, changed in _files(package))
    return remembered.digest("\n".join((_state(entry_point), *sorted(ours))))


def remember(entry_point: metadata.EntryPoint, died: str) -> None:
    """Record how a plugin's import in another process ended, "" if it survived."""
    remembered.remember(_key(entry_point), _state(entry_point), died)


def _module(entry_point: metadata.EntryPoint) -> str:
    return entry_point.value.partition(":")[0].strip()


def _has_interpreter() -> bool:
    """True if `sys.executable` is Python, and not an application that embeds it."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _key(entry_point: metadata.EntryPoint) -> str:
    """The identity of one plugin in one environment."""
    return "\n".join((sys.prefix, sys.version, owner(entry_point)[0], entry_point.group, entry_point.name))


def _state(entry_point: metadata.EntryPoint) -> str:
    """A digest that changes with the version, and with the names, sizes and mtimes of the plugin's files."""
    package = _module(entry_point).partition(".")[0]
    files = sorted(f"{path} {size} {changed}" for path, size, changed in _files(package))
    return remembered.digest("\n".join((*owner(entry_point), entry_point.value, *files)))


def _files(package: str) -> Iterator[tuple[str, int, int]]:
    """Path, size and mtime of the files of a package or module: at most `_MOST_FILES`, those at the top first."""
    try:
        spec = importlib.util.find_spec(package)
    except Exception:  # a broken finder of the environment: the import will report it
        return
    if spec is None:
        return
    folders = deque(spec.submodule_search_locations or ())
    left = _MOST_FILES
    if not folders and spec.origin is not None and Path(spec.origin).is_file():
        found = Path(spec.origin).stat()
        yield spec.origin, found.st_size, found.st_mtime_ns
    while folders and left > 0:
        for entry in _entries(folders.popleft()):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            elif left > 0:
                left -= 1
                found = entry.stat(follow_symlinks=False)
                yield entry.path, found.st_size, found.st_mtime_ns


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """The entries of a folder, without files created by imports."""
    try:
        with os.scandir(folder) as entries:
            return sorted((item for item in entries if item.name != "__pycache__"), key=lambda item: item.name)
    except OSError:
        return []
