"""Imports of ExecuTorch's classes, which leave logging as it was."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from threading import RLock
from typing import Any, Final

from delegatekit_api import LoweringError

from ..targets import System
from .generating import generate_mlx

#: Held while ExecuTorch is imported or listened to: both change logging for the process.
LOCK: Final = RLock()


def stock_class(system: System, reference: str) -> Any:
    """The class of a reference "module:class". Raises LoweringError where something is missing, and what to do."""
    module, _, name = reference.partition(":")
    with quietly(), importing(system, module):
        if system.generated:
            generate_mlx()
        return getattr(import_module(module), name)


@contextmanager
def importing(system: System, what: str) -> Iterator[None]:
    """While something of ExecuTorch's is imported. Raises LoweringError where something is missing, and what to do."""
    reason, where = system.reason(), f"backend {system.name}"
    if reason is not None:
        raise LoweringError(f"cannot work here: {reason}", where=where)
    try:
        yield
    except Exception as error:  # whatever imports of a vendor's packages raise
        raise LoweringError(f"{what} cannot be imported: {type(error).__name__}: {error}", where=where) from error


@contextmanager
def quietly() -> Iterator[None]:
    """Let nothing of what ExecuTorch and the vendors' packages log, warn of or print reach the user.

    Errors are raised beside. Logging is put back: some modules set the root logger's level, and add handlers to it.
    """
    root = logging.getLogger()
    # (PyTorch's and MLX's own show records, too; a place that has no logger yet is none.)
    others = [logger for logger in root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    loggers = [root, *(logger for logger in others if logger.handlers)]
    with LOCK, warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        before = [(logger, logger.level, list(logger.handlers)) for logger in loggers]
        for logger in loggers:
            logger.handlers[:] = [logging.NullHandler()]
        try:
            yield
        finally:
            for logger, level, handlers in before:
                logger.setLevel(level)
                logger.handlers[:] = handlers
