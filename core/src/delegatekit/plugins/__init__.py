"""Finds plugins, calls their hooks and contains their faults.

Importing this package imports neither a plugin nor torch.
"""

from __future__ import annotations

from .allowed import ALLOW_LIST
from .answers import check_answer, operator_times
from .backend import BackendInfo, LoadedBackend
from .blame import PluginWarning, blaming, fault, shown, warn
from .carried import described, restored
from .declared import BACKEND_GROUP, COMMAND_GROUP, OBSERVER_GROUP, entry_points, owner
from .discovery import ask_all, backends, get_backend, state_of
from .elsewhere import DEVICES, address_of
from .first_import import FIRST_IMPORTS
from .observers import add_observer, ask_observers, notify
from .owners import OwnerError, find_by_delegate_id
from .remembered import COMPILED, cache_folder
from .requirements import unmet
from .runtimes import CheckedBackend, check_backends

__all__ = [
    "ALLOW_LIST",
    "BACKEND_GROUP",
    "COMMAND_GROUP",
    "COMPILED",
    "DEVICES",
    "FIRST_IMPORTS",
    "OBSERVER_GROUP",
    "BackendInfo",
    "CheckedBackend",
    "LoadedBackend",
    "OwnerError",
    "PluginWarning",
    "add_observer",
    "address_of",
    "ask_all",
    "ask_observers",
    "backends",
    "blaming",
    "cache_folder",
    "check_answer",
    "check_backends",
    "described",
    "entry_points",
    "fault",
    "find_by_delegate_id",
    "get_backend",
    "notify",
    "operator_times",
    "owner",
    "restored",
    "shown",
    "state_of",
    "unmet",
    "warn",
]
