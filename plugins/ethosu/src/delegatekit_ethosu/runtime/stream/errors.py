"""The error for a program that is whole, but does something that is not executed on the host."""

from __future__ import annotations

from delegatekit_api import FormatError


class NotExecutableError(FormatError):
    """A command stream needs an NPU, a register value or an operation of which nothing is known here."""
