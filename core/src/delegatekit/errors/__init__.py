"""Errors that are ours: misuse, told apart from failure, and what Python and PyTorch raise, made into one of ours."""

from __future__ import annotations

from .foreign import UNEXPECTED, as_ours
from .misuse import Misuse, UnknownMethodError, WrongArgumentError

__all__ = ["UNEXPECTED", "Misuse", "UnknownMethodError", "WrongArgumentError", "as_ours"]
