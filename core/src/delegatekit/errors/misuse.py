"""Marks errors about what was asked for: it does not exist or cannot be meant. Commands then end with exit code 2."""

from __future__ import annotations

from delegatekit_api import DelegateKitError, ExecutionError, FormatError, LoweringError, PluginError


class Misuse:
    """Mixed into errors that tell, before the work begins, of a name, value or path that cannot be used as given."""


class UnknownBackendError(PluginError, Misuse):
    """No backend of this name is installed, or it is not one that can be meant here."""


class UnknownMethodError(ExecutionError, Misuse):
    """A file has no method of this name."""


class WrongArgumentError(LoweringError, Misuse):
    """Arguments contradict each other."""


class MissingToolsError(DelegateKitError, Misuse):
    """A name or command of `delegatekit-tools` is used, and that is not installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is part of delegatekit-tools, which is not installed", hint="pip install 'delegatekit[tools]'"
        )


class MissingFileError(FormatError, Misuse):
    """A file that is to be read is not there."""


class OutputError(FormatError, Misuse):
    """A file cannot be written where it is asked for."""
