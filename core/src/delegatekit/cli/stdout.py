"""Keeps stdout for results: what plugins, their libraries and models write there goes to stderr."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from .console import out


@contextmanager
def stdout_kept() -> Iterator[None]:
    """While a command runs, only what is written to `sys.stdout` is on stdout: descriptor 1 leads to stderr.

    In a process of its own nothing is given back at the end: what plugins print when the interpreter ends is no result
    either. A stdout that is no descriptor, as under a test, is left as it is.
    """
    if sys.stdout is not sys.__stdout__ or not _is_descriptor_1():
        yield
        return
    sys.stdout.flush()
    settings: Any = {"encoding": sys.stdout.encoding, "errors": sys.stdout.errors}
    results = os.fdopen(os.dup(1), "w", buffering=1 if sys.stdout.isatty() else -1, **settings)
    os.dup2(2, 1)
    sys.stdout = results
    try:
        yield
    finally:
        sys.stdout = sys.stderr
        results.flush()


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
