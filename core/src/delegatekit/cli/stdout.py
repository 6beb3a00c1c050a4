"""Keeps stdout for results: what plugins, their libraries and models write there goes to stderr."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

from .console import out


@contextmanager
def stdout_kept() -> Iterator[None]:
    """While a command runs, only what is written to `sys.stdout` is on stdout: descriptor 1 leads to stderr.

    So it does again when the interpreter ends: what plugins print then is no result either. While a plugin's thread
    runs, descriptor 1 is not given back. A stdout that is not descriptor 1, as under a test, is left as it is.
    """
    kept = sys.stdout
    if not _is_descriptor_1():
        yield
        return
    kept.flush()
    settings: Any = {"encoding": kept.encoding, "errors": kept.errors}
    results: TextIO = os.fdopen(os.dup(1), "w", buffering=1 if kept.isatty() else -1, **settings)
    os.dup2(2, 1)
    sys.stdout = results
    try:
        yield
    finally:
        _flush(results)
        if threading.active_count() > 1:  # threads of plugins may write at any time
            sys.stdout = sys.stderr
        else:
            os.dup2(results.fileno(), 1)
            sys.stdout = kept
            # What is registered last runs first: before whatever plugins have registered.
            atexit.register(_turn_away)


def _flush(results: TextIO) -> None:
    """Write what is left; if it cannot be written, which the command has told by then, it is dropped."""
    try:
        results.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, results.fileno())
        os.close(nowhere)
        results.flush()


def _turn_away() -> None:
    sys.stdout.flush()
    os.dup2(2, 1)


def _is_descriptor_1() -> bool:
    try:
        os.fstat(2)
        return sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):  # closed, or none at all
        return False


def results_alone(command: Callable[..., None]) -> Callable[..., None]:
    """A command that prints its results by `console`; what anything else prints meanwhile goes to stderr."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        printer: Any = out
        printer.file = sys.stdout
        try:
            with redirect_stdout(sys.stderr):
                command(*arguments, **options)
        finally:
            printer.file = None  # whatever sys.stdout is then

    return run
