"""Imports of ExecuTorch's classes, which leave logging as it was."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any, Final

from delegatekit_api import LoweringError

from ..targets import System

#: Held while ExecuTorch is imported or listened to: both change logging for the process.
LOCK: Final = RLock()


def stock_class(system: System, reference: str) -> Any:
    """The class of a reference "module:class". Raises LoweringError where something is missing, and what to do."""
    reason = system.reason()
    if reason is not None:
        raise LoweringError(f"cannot work here: {reason}", where=f"backend {system.name}")
    module, _, name = reference.partition(":")
    with LOCK, _logging_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return getattr(import_module(module), name)
        except Exception as error:  # whatever imports of a vendor's packages raise
            raise LoweringError(
                f"{module} cannot be imported: {type(error).__name__}: {error}", where=f"backend {system.name}"
            ) from error


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Put the root logger back: some of ExecuTorch's modules set its level and add handlers when they are imported."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    root.handlers[:] = [logging.NullHandler()]  # what they log while they are imported is of no use
    try:
        yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
