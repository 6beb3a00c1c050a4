"""The commands that other distributions bring: one that is broken says so when it is called, and disturbs no other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import redirect_stdout
from typing import Any, Final

import importlib_metadata as metadata
import typer

from delegatekit_api import PluginError
from delegatekit_api.versions import PROJECT

from ..plugins import fault, first_import
from ..plugins.allowed import forbidden
from ..plugins.declared import COMMAND_GROUP, entry_points, normalized, owner
from .console import warn

#: The distribution of ours that brings commands: no plugin, and so neither tried in another process nor forbidden.
_OURS: Final = f"{PROJECT}-tools"


def add_commands(app: typer.Typer, taken: Collection[str], wanted: str | None = None) -> None:
    """Add all of them to the application, or the one that is wanted, if there is such. No name may be taken."""
    names = set(taken)
    found = entry_points(COMMAND_GROUP)
    for entry_point in [item for item in found if item.name == wanted] or found:
        if entry_point.name in names:
            warn(f"the command {_place(entry_point)} is ignored: the name is taken")
            continue
        names.add(entry_point.name)
        _add(app, entry_point.name, _load(entry_point))


def _add(app: typer.Typer, name: str, command: Callable[..., Any] | typer.Typer) -> None:
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name)
    else:
        app.command(name)(command)


def _load(entry_point: metadata.EntryPoint) -> Callable[..., Any] | typer.Typer:
    """The command, or one that tells why it cannot be used."""
    ours = normalized(owner(entry_point)[0]) == _OURS
    reason = None if ours else forbidden(entry_point)
    if reason is not None:
        return _unusable(entry_point, "not allowed", reason)
    try:
        died = None if ours else first_import.refusal(entry_point)
        if died is not None:
            return _broken(entry_point, f"importing it {died}")
        with redirect_stdout(sys.stderr):
            command: Any = entry_point.load()
            # Typer reads the signature when all commands are put together: here only this one would fail.
            alone = typer.Typer()
            _add(alone, entry_point.name, command)
            typer.main.get_command(alone)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _broken(entry_point, fault(error))
    return command  # type: ignore[no-any-return]


def _place(entry_point: metadata.EntryPoint) -> str:
    return f"{entry_point.name} of {entry_point.value} ({' '.join(owner(entry_point))})"


def _broken(entry_point: metadata.EntryPoint, reason: str) -> Callable[[], None]:
    return _unusable(entry_point, "broken", f"{entry_point.value} cannot be loaded", f"cannot be loaded: {reason}")


def _unusable(entry_point: metadata.EntryPoint, word: str, reason: str, told: str = "") -> Callable[[], None]:
    """A command that says why it does nothing, in the help in short."""

    def unusable() -> None:
        raise PluginError(told or f"is {word}: {reason}", where=f"command {_place(entry_point)}")

    unusable.__doc__ = f"({word}: {reason})"
    return unusable
