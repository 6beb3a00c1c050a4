"""The command line: `delegatekit backends | targets | lower | explain | quantize | inspect | run`, and what others add.

Exit codes: 0 ok, 1 failed, 2 wrong usage. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any, Final

import importlib_metadata as metadata
import typer
from rich.markup import escape

from delegatekit_api import DelegateKitError, OptionError, PluginError

from .backends import backends
from .console import err
from .explain import explain
from .inspect import inspect
from .lower import lower
from .quantize import quantize
from .run import run
from .schemes import schemes
from .targets import targets

#: Entry points of further commands: functions for typer, or Typer applications that hold several.
COMMAND_GROUP: Final = "delegatekit.commands"

app = typer.Typer(
    name="delegatekit",
    help="Lower PyTorch programs to hardware backends, and inspect, explain and run the .pte files.",
    epilog="With --debug, a command that fails shows the whole traceback, and stages check what they hand on.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
#: The commands, in the order of --help.
COMMANDS: Final[tuple[Callable[..., None], ...]] = (
    backends,
    lower,
    explain,
    targets,
    schemes,
    quantize,
    inspect,
    run,
)
for _command in COMMANDS:
    app.command()(_command)


def main() -> None:
    """Entry point of the `delegatekit` command."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
        os.environ["DELEGATEKIT_VERIFY"] = "1"
    _add_commands(sys.argv[1:])
    try:
        app()
    except (DelegateKitError, OSError) as error:
        if debug:
            raise
        err.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
        raise SystemExit(2 if isinstance(error, OptionError) else 1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _add_commands(arguments: Sequence[str]) -> None:
    """Add the commands of other distributions, unless it is clear that none of them is wanted.

    One that cannot be loaded says so when it is called; none may take the place of a command that exists.
    """
    taken = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted in taken:
        return
    for entry_point in metadata.entry_points(group=COMMAND_GROUP):
        if entry_point.name in taken:
            err.print(f"the command {entry_point.name} of {entry_point.value} is ignored: the name is taken")
            continue
        taken.add(entry_point.name)
        command = _load_command(entry_point)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=entry_point.name)
        else:
            app.command(entry_point.name)(command)


def _load_command(entry_point: metadata.EntryPoint) -> Callable[..., Any] | typer.Typer:
    try:
        with redirect_stdout(sys.stderr):
            command: Callable[..., Any] | typer.Typer = entry_point.load()
    except (Exception, SystemExit) as error:
        reason = f"cannot be loaded: {type(error).__name__}: {error}"

        def broken() -> None:
            raise PluginError(reason, where=f"command {entry_point.name} ({entry_point.value})")

        broken.__doc__ = f"(broken: {entry_point.value} cannot be loaded)"
        return broken
    return command
