"""The command line: `delegatekit backends | lower | explain | quantize | inspect | run ...`, and what others add.

Exit codes: 0 ok, 1 failed, 2 wrong usage, 130 interrupted, 129 and 143 ended by SIGHUP and SIGTERM. Nothing heavy is
imported before a command needs it.
"""

from __future__ import annotations

import copy
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, Final, NoReturn

import typer

from delegatekit_toolkit.completion import unbreak

from .. import TOOLS
from ..errors.misuse import MissingToolsError
from ..plugins import DEVICES, PluginWarning
from ..text.terminal import Terminal, clean_streams
from ..version import __version__
from .backends import backends
from .console import say, usage, warn
from .failures import FAILED, INTERRUPTED, give_up_stdout, tell
from .lower import lower
from .quantize import quantize
from .run import run
from .stdout import results_alone, stdout_kept
from .termination import terminable

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
    quantize,
    run,
)
#: The commands of `delegatekit-tools`, most of which are named as functions are.
_OF_TOOLS: Final = TOOLS | {"cache", "schemes", "targets"}
for _command in COMMANDS:
    app.command()(results_alone(_command))


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"delegatekit {__version__}")
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
    device: Annotated[
        list[str],
        typer.Option(metavar="[BACKEND=]ADDRESS", help="Anywhere in a command: run delegates at tls://HOST:PORT."),
    ] = [],  # noqa: B006
) -> None:
    """Lower PyTorch programs to hardware backends, run the .pte files, and look at what was made."""
    if device:
        usage(f"--device {device[0]!r} is no address, as tls://HOST:PORT is")


def main() -> None:
    """Entry point of the `delegatekit` command."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
        os.environ["DELEGATEKIT_VERIFY"] = "1"
    sys.argv = _without_devices(sys.argv)
    unbreak(os.environ)
    with terminable(), stdout_kept(), clean_streams(), _help_is_clean(), _warnings_in_a_line():
        _run(sys.argv[1:], debug=debug)


def _without_devices(words: Sequence[str]) -> list[str]:
    """The command line without `--device ADDRESS`, which goes into the environment, where all processes find it."""
    kept: list[str] = []
    for word in words:
        address = word.removeprefix("--device=")
        if "://" in word and (address != word or kept[-1:] == ["--device"]):
            del kept[len(kept) - (address == word) :]
            os.environ[DEVICES] = f"{os.environ.get(DEVICES, '')},{address}"
        else:
            kept.append(word)
    return kept


def _run(arguments: Sequence[str], *, debug: bool) -> NoReturn:
    whole = application(arguments)
    try:
        code = whole(prog_name="delegatekit", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:  # as under `| head`: the reader has what it wanted
        give_up_stdout()
        raise SystemExit(FAILED) from None
    except SystemExit:
        raise
    except BaseException as error:
        if debug:
            traceback.print_exc()
        raise SystemExit(tell(error, as_json=_wants_json(whole, arguments))) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _wants_json(whole: typer.Typer, arguments: Sequence[str]) -> bool:
    """True if the command has a flag `--json`, and it is given."""
    command: Any = typer.main.get_command(whole)
    for word in (argument for argument in arguments if not argument.startswith("-")):
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        command = inner
    flags = (item for item in command.params if "--json" in item.opts and getattr(item, "is_flag", False))
    return "--json" in arguments and next(flags, None) is not None


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Our commands and those of other distributions, unless it is clear that none of them is wanted."""
    whole = copy.copy(app)
    whole.registered_commands = list(app.registered_commands)
    whole.registered_groups = list(app.registered_groups)
    taken = {command.__name__ for command in COMMANDS}
    wanted = next((argument for argument in arguments if not argument.startswith("-")), None)
    if wanted not in taken and (wanted is not None or {"--version", "-V"}.isdisjoint(arguments)):
        from .extensions import add_commands

        add_commands(whole, taken, wanted)
        if wanted in _OF_TOOLS and wanted not in {command.name for command in whole.registered_commands}:
            _add_missing(whole, wanted)
    return whole


def _add_missing(whole: typer.Typer, name: str) -> None:
    """Add a command of the tools, which are not installed: with whatever arguments, it tells how they are."""

    @whole.command(name, hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    def missing(as_json: Annotated[bool, typer.Option("--json", hidden=True)] = False) -> None:
        raise MissingToolsError(f"the command {name}")


@contextmanager
def _help_is_clean() -> Iterator[None]:
    """Show the help, in which other distributions have a say, on a console of ours: colors are for those only."""
    from typer import rich_utils

    typers: Any = rich_utils
    before, typers.Console = typers.Console, partial(Terminal, markup=True)
    try:
        yield
    finally:
        typers.Console = before


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show warnings of plugins and about them as messages of ours; all others as Python does."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning) or "delegatekit_" in str(where[0]):
            warn(str(message))
        else:
            shown(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = show
        yield
