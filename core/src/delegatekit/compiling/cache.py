"""Caches compiled partitions in the user's cache folder, under a digest of all that they depend on.

Only of backends with a compiler version (hook `compiler_version`): of others it is not known when a result is
out of date. The store is diskcache's: SQLite and files, for several processes, least recently used evicted first.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from delegatekit_api.versions import API_VERSION
from delegatekit_toolkit.content import content_key
from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.number_text import BYTES, with_unit

from ..edge.constants import Constants
from ..plugins import COMPILED, cache_folder, state_of, warn
from ..version import __version__
from .packed import DamagedError, pack, unpack
from .plain_program import NotPlainError
from .result import CheckedResult
from .task import Task

#: Default capacity in bytes.
_SIZE: Final = 2 << 30
#: Seconds that a process waits for another's access.
_PATIENCE: Final = 10.0

#: The pattern of diskcache's value file names.
_FILE: Final = re.compile(r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{28}\.val")

T = TypeVar("T")


@dataclass(frozen=True)
class CacheInfo:
    """The location and the contents of the cache."""

    folder: str
    results: int
    bytes: int
    limit: int


class Cache:
    """The compiled partitions of this user. Any fault of the store counts as a miss."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    @classmethod
    def of_user(cls) -> Cache | None:
        """The cache, unless it is turned off or there is no folder for it."""
        wanted = os.environ.get(COMPILED, "")
        if wanted.lower() == "off":
            return None
        try:
            return cls(cache_folder() / "compiled", _size(wanted) if wanted else _SIZE)
        except (OSError, RuntimeError):
            return None

    def find(self, key: str, constants: Constants[int]) -> CheckedResult | None:
        """The result under a key; None if there is none, or a damaged one, which is deleted."""
        data = self._do(lambda store: store.get(key), None)
        if not isinstance(data, bytes):
            return None
        try:
            return unpack(data, constants, key)
        except DamagedError:
            self._do(lambda store: store.delete(key), None)
            return None

    def keep(self, key: str, result: CheckedResult, constants: Constants[int]) -> None:
        """Store a result, unless it is larger than the capacity."""
        data = pack(result, constants, key)
        if len(data) <= self._limit:
            self._do(lambda store: store.set(key, data), None)

    def info(self) -> CacheInfo:
        """The current contents."""
        results, size = self._do(lambda store: (len(store), store.volume()), (0, 0))
        return CacheInfo(str(self._folder), results, size, self._limit)

    def clear(self) -> int:
        """Delete everything; returns the number of results."""
        return int(self._do(lambda store: store.clear(), 0))

    def _do(self, action: Callable[[Any], T], otherwise: T) -> T:
        """Run an action on the store; an unusable store is reported once per process."""
        import diskcache  # type: ignore[import-untyped]

        try:
            with diskcache.Cache(
                str(self._folder),
                size_limit=self._limit,
                timeout=_PATIENCE,
                disk=_plain_disk(),
                eviction_policy="least-recently-used",
                statistics=0,
            ) as store:
                return action(store)
        except Exception as error:  # whatever a foreign database makes diskcache raise
            warn(f"the cache of compiled partitions in {self._folder} cannot be used: {error}")
            return otherwise


def _plain_disk() -> type:
    """A disk of diskcache's that only reads bytes of its own files: the original unpickles, reads, deletes per row."""
    import diskcache

    class Plain(diskcache.Disk):  # type: ignore[misc]
        def get(self, key: Any, raw: bool) -> Any:
            return super().get(key, raw) if raw else None

        def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
            if mode == diskcache.core.MODE_RAW:
                return super().fetch(mode, None, value, False)
            if mode == diskcache.core.MODE_BINARY and _is_own(self._directory, filename):
                return _content(Path(self._directory, str(filename)))
            return None

        def remove(self, file_path: Any) -> None:
            if _is_own(self._directory, file_path):
                super().remove(file_path)

    return Plain


def _is_own(folder: str, name: object) -> bool:
    """True if a row names a file as diskcache does, in the store's folder itself and not through a link."""
    if not isinstance(name, str) or not _FILE.fullmatch(name):
        return False
    parent = Path(folder, name).parent
    return os.path.realpath(parent) == str(Path(os.path.realpath(folder), *Path(name).parts[:-1]))


def _content(path: Path) -> bytes | None:
    """The content of a regular file; None for everything else, links included."""
    flags = (getattr(os, name, 0) for name in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK"))
    handle = os.open(path, os.O_RDONLY | sum(flags))
    with os.fdopen(handle, "rb") as file:
        return file.read() if stat.S_ISREG(os.fstat(handle).st_mode) else None


def _size(text: str) -> int:
    """Bytes of "500MB"; the default for anything but a size."""
    size = with_unit(text, BYTES)
    if size is not None and math.isfinite(size):
        return round(size)
    warn(f"{COMPILED}={text} is neither off nor a size such as 500MB: {_SIZE >> 30} GiB are used")
    return _SIZE


def keys_of(task: Task) -> list[tuple[str, Constants[int]]] | None:
    """For each program of a task, the key of its result, and the constants that the result may refer to.

    None for backends without a compiler version, and for programs that are not plain.
    """
    backend, options = task.backend, task.options
    tool = backend.compiler_version(options)
    if tool is None:
        return None
    maker = [
        *(__version__, str(API_VERSION), torch.__version__, platform.python_version(), platform.machine()),
        *(backend.name, backend.distribution, backend.version, state_of(backend.name), tool),
        options.to_json().decode(),
    ]
    try:
        plain = task.plain
    except NotPlainError:
        return None
    digests = [[hashlib.sha256(item.text()).hexdigest(), *map(content_key, item.constants.values())] for item in plain]
    # Partitions that are compiled together may depend on each other.
    together = digests if backend.compiles_together(options) else []
    return [
        (hashlib.sha256(to_json([maker, own, together], compact=True).encode()).hexdigest(), item.constants)
        for own, item in zip(digests, plain, strict=True)
    ]
