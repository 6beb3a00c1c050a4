"""The error that the suite raises for invalid input."""

from __future__ import annotations

from delegatekit_api import OptionError


class InputError(OptionError):
    """A setting, or an input file of the suite, is wrong. Commands end with exit code 2."""
