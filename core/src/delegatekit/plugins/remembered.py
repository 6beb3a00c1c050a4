"""Persistent facts about plugins: a small file for each in the user's cache folder.

Any fault of the file or the folder (damaged, read-only, absent) counts as not remembered. A file is replaced
atomically, so that processes do not disturb each other.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delegatekit_api.versions import PROJECT
from delegatekit_toolkit.json_text import to_json

#: Environment variable with the folder, or "off" to store nothing.
CACHE: Final = "DELEGATEKIT_CACHE"
#: Environment variable that disables the cache of compiled partitions ("off") or limits its size ("500MB").
COMPILED: Final = "DELEGATEKIT_COMPILED"
#: Seconds after which a plugin that died is tried again: its requirements may have been installed.
_AGAIN: Final = 3600.0


def recall(key: str, state: str) -> str | None:
    """The recorded death of a plugin in this state at its import, "" if it survived; None if unknown."""
    try:
        kept: Any = json.loads(_place(key).read_bytes())
        died, age = kept["died"], time.time() - kept["time"]
        if kept["state"] != state or not isinstance(died, str):
            return None
    except (OSError, RuntimeError, ValueError, LookupError, TypeError):
        return None
    if not died:
        return died
    # A clock that was set back counts as elapsed time.
    return f"{died} (`{PROJECT} backends --check` tries again)" if 0 <= age < _AGAIN else None


def remember(key: str, state: str, died: str) -> None:
    """Record how the import of a plugin in this state ended, "" if it survived."""
    with suppress(OSError, RuntimeError):  # RuntimeError: there is no home folder
        place = _place(key)
        place.parent.mkdir(parents=True, exist_ok=True)
        written = place.with_name(f".{place.stem}-{os.getpid()}-{time.monotonic_ns()}")
        try:
            written.write_text(to_json({"state": state, "died": died, "time": time.time()}), "utf-8")
            written.replace(place)
        except BaseException:
            written.unlink(missing_ok=True)
            raise


def _place(key: str) -> Path:
    """The file about a plugin. Raises OSError if nothing is to be stored, RuntimeError without a home folder."""
    return cache_folder() / "plugins" / f"{digest(key)[:32]}.json"


def digest(text: str) -> str:
    """SHA-256 of a text, as hexadecimal digits."""
    import hashlib  # here: commands that only list plugins do not need it

    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def cache_folder() -> Path:
    """The user's folder for reproducible data. Raises as `_place` does."""
    given = os.environ.get(CACHE, "")
    if given == "off":
        raise OSError(f"{CACHE} is off")
    if given:
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / PROJECT
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / PROJECT
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / PROJECT
