"""The command line `delegatekit`: a file for each command, and what they share."""

from __future__ import annotations

from .command_line import application, main

__all__ = ["application", "main"]
