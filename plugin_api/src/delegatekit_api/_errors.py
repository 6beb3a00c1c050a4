"""The exception hierarchy: each message says what was wrong, where, and what to do."""

from __future__ import annotations


class DelegateKitError(Exception):
    """Base of all errors that DelegateKit raises on purpose.

    `what` says what was wrong; `where` names the node, operator, file or offset; `hint` says what to do.
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.what = what
        self.where = where
        self.hint = hint
        message = what if where is None else f"{where}: {what}"
        super().__init__(message if hint is None else f"{message}\n  -> {hint}")


class PluginError(DelegateKitError):
    """A plugin is missing, could not be loaded, or returned something that the API does not allow."""


class OptionError(DelegateKitError):
    """A backend option does not exist or has a value of the wrong type or range."""


class LoweringError(DelegateKitError):
    """The program could not be lowered."""


class UnsupportedError(LoweringError):
    """The program contains something that neither a chosen backend nor the runtime's own operators can run."""


class QuantizationError(DelegateKitError):
    """The model could not be quantized as requested."""


class FormatError(DelegateKitError):
    """A file or blob violates its format."""


class RuntimeUnavailableError(DelegateKitError):
    """A delegate's runtime is not installed or does not work on this machine."""


class ExecutionError(DelegateKitError):
    """A loaded program was called wrongly, or failed while running."""
