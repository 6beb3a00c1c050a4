"""The error that the suite raises when it was given something wrong."""

from __future__ import annotations

from delegatekit_api import OptionError


class InputError(OptionError):
    """A setting, or a file that was given to the suite, is wrong. Commands end with exit code 2."""
