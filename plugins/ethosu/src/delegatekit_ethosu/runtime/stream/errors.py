"""The error for a valid program with features that are not executed on the host."""

from __future__ import annotations

from delegatekit_api import FormatError


class NotExecutableError(FormatError):
    """A command stream uses an NPU, a register value or an operation that is not supported here."""
