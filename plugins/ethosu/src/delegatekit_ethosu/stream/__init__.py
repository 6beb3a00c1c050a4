"""Executes the command stream of an Ethos-U55 on the host, bit for bit as the NPU does."""

from __future__ import annotations

from .commands import Command, CommandStream, Configuration, decode
from .machine import Machine

__all__ = ["Command", "CommandStream", "Configuration", "Machine", "decode"]
