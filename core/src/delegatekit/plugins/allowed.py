"""The user's allow-list of plugins to import, for every group of entry points; reading it imports nothing."""

from __future__ import annotations

import os
from typing import Final

import importlib_metadata as metadata

from .declared import BACKEND_GROUP, entry_points, normalized, owner

#: Environment variable with the names of the only backends, observers and commands to import, separated by commas.
ALLOW_LIST: Final = "DELEGATEKIT_BACKENDS"


def is_allowed(name: str) -> bool:
    """True if the user has not disabled the backend."""
    allowed = os.environ.get(ALLOW_LIST)
    return allowed is None or name in {item.strip() for item in allowed.split(",")}


def forbidden(entry_point: metadata.EntryPoint) -> str | None:
    """The reason why an observer or a command must not be imported; None if it is named, or belongs to a named backend.

    It belongs to a backend if its distribution, and no other, provides that backend.
    """
    if is_allowed(entry_point.name) or _comes_with_backend(entry_point):
        return None
    return f"{ALLOW_LIST}={os.environ[ALLOW_LIST]} does not name it"


def _comes_with_backend(entry_point: metadata.EntryPoint) -> bool:
    name = normalized(owner(entry_point)[0])
    found: dict[str, set[str]] = {}
    for backend in entry_points(BACKEND_GROUP):
        if is_allowed(backend.name):
            found.setdefault(backend.name, set()).add(normalized(owner(backend)[0]))
    return name != "unknown" and {name} in found.values()
