"""Checks for the Python package of a vendor's tool without importing it."""

from __future__ import annotations

from importlib.util import find_spec

from delegatekit_api import Availability


def installed(module: str, words: str, install: str) -> Availability:
    """The answer to the hook `compiler_availability` for a tool that is a top-level module.

    `words` is the tool's name in messages, `install` the command that installs it.

    >>> installed("json", "JSON", "pip install json")
    Availability(available=True, reason='')
    >>> installed("no_such_tool", "the compiler", "pip install no-such-tool").reason
    'the compiler is not installed: pip install no-such-tool'
    """
    if find_spec(module) is not None:
        return Availability(True)
    return Availability(False, f"{words} is not installed: {install}")
