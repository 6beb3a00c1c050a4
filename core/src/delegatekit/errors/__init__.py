"""DelegateKit's own errors: misuse, distinct from failure, and the conversion of exceptions of Python and PyTorch."""

from __future__ import annotations

from .foreign import UNEXPECTED, as_ours
from .misuse import Misuse, UnknownMethodError, WrongArgumentError

__all__ = ["UNEXPECTED", "Misuse", "UnknownMethodError", "WrongArgumentError", "as_ours"]
