"""Runtimes in child processes: a proxy with the same protocol as a backend's runtime in this process."""

from __future__ import annotations

from .child import DiedError as RuntimeDiedError
from .child import end_all, until
from .proxy import RuntimeApart

__all__ = ["RuntimeApart", "RuntimeDiedError", "end_all", "until"]
