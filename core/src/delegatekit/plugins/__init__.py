"""Finds plugins, calls their hooks and contains their faults.

Importing this package imports neither a plugin nor torch.
"""

from __future__ import annotations

from .backend import BackendInfo, LoadedBackend
from .blame import blaming
from .discovery import ALLOW_LIST, BACKEND_GROUP, backends, find_by_delegate_id, get_backend
from .observers import OBSERVER_GROUP, add_observer, extra_conformance_cases, notify

__all__ = [
    "ALLOW_LIST",
    "BACKEND_GROUP",
    "OBSERVER_GROUP",
    "BackendInfo",
    "LoadedBackend",
    "add_observer",
    "backends",
    "blaming",
    "extra_conformance_cases",
    "find_by_delegate_id",
    "get_backend",
    "notify",
]
