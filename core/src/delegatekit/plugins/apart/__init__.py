"""Runtimes at arm's length: a backend's runtime in a child process, behind the protocol that it has in this one."""

from __future__ import annotations

from .child import end_all, until
from .proxy import RuntimeApart

__all__ = ["RuntimeApart", "end_all", "until"]
