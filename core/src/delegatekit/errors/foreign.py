"""The one place where exceptions of Python and PyTorch become DelegateKit errors, with the original as their cause.

Exceptions of plugins are handled by `plugins/blame.py`, which names the plugin.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any, Final, TextIO, cast

from delegatekit_api import DelegateKitError

#: The hint of an error without a more specific one.
UNEXPECTED: Final = (
    "if the arguments are right and the model runs in PyTorch, this is a fault of DelegateKit: please report it"
)

#: Characters of a foreign text that are shown: some of PyTorch's are pages long.
_LONGEST: Final = 400

#: Makes the error from the type and text of the exception.
MakeError = Callable[[str], DelegateKitError]


@contextmanager
def as_ours(make_error: MakeError) -> Iterator[None]:
    """Convert a foreign exception to the error that `make_error` makes of its type and text; also a decorator.

    DelegateKit's errors pass through, as does anything that is not a fault of the call: Ctrl-C, and exit.
    """
    try:
        yield
    except DelegateKitError:
        raise
    except Exception as error:
        raise make_error(described(error)) from error


def described(error: Exception) -> str:
    """Type and text of an exception in one line, truncated if it is pages long."""
    paragraph = str(error).strip().split("\n\n")[0]
    text = " ".join(paragraph.split())
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def torch_logs_nothing() -> Iterator[None]:
    """Keep PyTorch from logging at length an error that it raises anyway, unless TORCH_LOGS asks for logs."""
    if os.environ.get("TORCH_LOGS"):
        yield
        return

    def nothing(record: logging.LogRecord) -> bool:
        return False

    # The loggers that PyTorch creates meanwhile use the handlers of one of these.
    loggers = [item for name, item in logging.root.manager.loggerDict.copy().items() if name.split(".")[0] == "torch"]
    found = [item for item in loggers if isinstance(item, logging.Logger)]
    silent: list[logging.Filterer] = [*found, *(handler for logger in found for handler in logger.handlers)]
    for item in silent:
        item.addFilter(nothing)
    try:
        with redirect_stderr(cast(TextIO, _WithoutGraphs(sys.stderr))):
            yield
    finally:
        for item in silent:
            item.removeFilter(nothing)


class _WithoutGraphs:
    """A text file that drops the half-traced graph that torch.export prints before it raises."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._left_out = False

    def write(self, text: str) -> int:
        """Write a text, unless it is such a graph or the line end that `print` writes after it."""
        is_graph = text.lstrip().startswith("def forward(self")
        if not is_graph and not (self._left_out and text == "\n"):
            self._file.write(text)
        self._left_out = is_graph
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
