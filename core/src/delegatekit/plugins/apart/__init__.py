"""Runtimes at arm's length: a backend's runtime in a child process, behind the protocol that it has in this one."""

from __future__ import annotations

from .child import DiedError as RuntimeDiedError
from .child import end_all, until
from .proxy import RuntimeApart

__all__ = ["RuntimeApart", "RuntimeDiedError", "end_all", "until"]
