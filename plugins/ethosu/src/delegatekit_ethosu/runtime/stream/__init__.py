"""Executes the command stream of an Ethos-U55 on the host, bit-exact with the NPU.

commands (words) -> registers, fields, plan (operations) -> machine, with memory, weights and one module for each kind
of operation. Nothing unknown is skipped: it is refused, with its position in the stream and the value.
"""

from __future__ import annotations

from .commands import Command, CommandStream, Configuration, decode
from .coverage import EXECUTED, REFUSED, listing
from .errors import NotExecutableError
from .machine import Machine

__all__ = [
    "EXECUTED",
    "REFUSED",
    "Command",
    "CommandStream",
    "Configuration",
    "Machine",
    "NotExecutableError",
    "decode",
    "listing",
]
