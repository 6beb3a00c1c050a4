"""Marks errors about a request that does not exist or makes no sense. Commands then end with exit code 2."""

from __future__ import annotations

from delegatekit_api import DelegateKitError, ExecutionError, FormatError, LoweringError, PluginError


class Misuse:
    """Mixin of errors, raised before the work begins, about a name, value or path that cannot be used as given."""


class UnknownBackendError(PluginError, Misuse):
    """No backend of this name is installed, or it cannot be meant here."""


class UnknownMethodError(ExecutionError, Misuse):
    """A file has no method of this name."""


class WrongArgumentError(LoweringError, Misuse):
    """Arguments contradict each other."""


class MissingToolsError(DelegateKitError, Misuse):
    """A name or command of `delegatekit-tools` is used without the package installed."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is part of delegatekit-tools, which is not installed", hint="pip install 'delegatekit[tools]'"
        )


class MissingFileError(FormatError, Misuse):
    """A file to read does not exist."""


class OutputError(FormatError, Misuse):
    """A file cannot be written to the requested path."""
