"""The command line: `delegatekit backends | targets | lower | explain | quantize | inspect | run`, and what others add.

Exit codes: 0 ok, 1 failed, 2 wrong usage. Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Annotated, Any, Final

import importlib_metadata as metadata
import typer

from delegatekit_api import PluginError

from ..plugins.installation import COMMAND_GROUP
from ..version import __version__
from .backends import backends
from .console import err
from .doctor import doctor
from .explain import explain
from .failures import FAILED, INTERRUPTED, give_up_stdout, tell
from .inspect import inspect
from .lower import lower
from .quantize import quantize
from .run import run
from .schemes import schemes
from .targets import targets

app = typer.Typer(
    name="delegatekit",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
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
    doctor,
)
for _command in COMMANDS:
    app.command()(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"delegatekit {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug", help="Anywhere in a command: show the traceback of an error, and check what stages hand on."
        ),
    ] = False,
) -> None:
    """Lower PyTorch programs to hardware backends, and inspect, explain and run the .pte files."""


def main() -> None:
    """Entry point of the `delegatekit` command."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
        os.environ["DELEGATEKIT_VERIFY"] = "1"
    arguments = sys.argv[1:]
    _add_commands(arguments)
    try:
        code = app(prog_name="delegatekit", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # as under `| head`: the reader has what it wanted
        give_up_stdout()
        raise SystemExit(FAILED) from None
    except Exception as error:
        if debug:
            raise
        raise SystemExit(tell(error, as_json=_wants_json(arguments))) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command that is called has a flag `--json`, and it is given."""
    command: Any = typer.main.get_command(app)
    for word in (argument for argument in arguments if not argument.startswith("-")):
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    flags = (item for item in command.params if "--json" in item.opts and getattr(item, "is_flag", False))
    return "--json" in arguments and next(flags, None) is not None


def _add_commands(arguments: Sequence[str]) -> None:
    """Add the commands of other distributions, unless it is clear that none of them is wanted.

    One that cannot be loaded says so when it is called; none may take the place of a command that exists.
    """
    taken = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted in taken or (wanted is None and not {"--version", "-V"}.isdisjoint(arguments)):
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
