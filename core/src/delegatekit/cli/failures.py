"""The end of a failed command: one message that says what, where and what to do, and an exit code."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass
from io import StringIO
from typing import Any, Final

import typer

from delegatekit_api import DelegateKitError, OptionError

from ..errors.misuse import Misuse
from ..plugins import fault
from ..text import one_line
from .console import head, print_json

#: Exit codes.
FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130

#: What Typer raises for a command line that it cannot parse. It has no public name, but its subclass has.
CommandLineError: Final[Any] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


@dataclass(frozen=True)
class Failure:
    """An error, as `--json` prints it."""

    #: The class of the error.
    kind: str
    what: str
    where: str | None
    hint: str | None
    exit_code: int

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The message of an error."""
        kind = type(error).__name__
        if isinstance(error, DelegateKitError):
            code = WRONG_USAGE if isinstance(error, OptionError | Misuse) else FAILED
            return cls(kind, error.what, error.where, error.hint, code)
        if isinstance(error, CommandLineError):
            context = getattr(error, "ctx", None)
            command = "delegatekit" if context is None else context.command_path
            return cls("UsageError", error.format_message(), None, f"{command} --help", WRONG_USAGE)
        if isinstance(error, OSError):
            where = None if error.filename is None else os.fspath(error.filename)
            return cls(kind, error.strerror or str(error), where, None, FAILED)
        return cls(
            kind,
            f"unexpected {fault(error)}",
            None,
            "--debug shows where; `delegatekit doctor --json` is for the report",
            FAILED,
        )

    def __str__(self) -> str:
        where = None if self.where is None else one_line(self.where)
        return str(DelegateKitError(self.what, where=where, hint=self.hint))


def tell(error: BaseException, *, as_json: bool) -> int:
    """Print what went wrong, as JSON on stdout or as text on stderr; returns the exit code."""
    try:
        failure = Failure.of(error)
    except BaseException:  # an error of a plugin's own class, which cannot even be shown
        failure = Failure(type(error).__name__, fault(error), None, None, FAILED)
    if not failure.what:  # Typer has printed the help of a group of commands that was called without one
        return failure.exit_code
    if as_json:
        print_json({"error": asdict(failure)})
        sys.stdout.flush()
    else:
        word = "usage" if failure.kind == "UsageError" else "error"
        head(f"{word}:", "bold red", str(failure))
    return failure.exit_code


def give_up_stdout() -> None:
    """Nothing can be written to stdout any more: keep the interpreter from trying it once more at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # a stdout that is no file, as under a test
        sys.stdout = StringIO()
