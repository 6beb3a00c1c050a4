"""`delegatekit lab`: certificates, who has a board, reservations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit.cli import remark, say, usage

if TYPE_CHECKING:
    from ..wire import Welcome

lab = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Boards on other machines: certificates, who has one."
)

AddressArgument = Annotated[str, typer.Argument(help="Where the board's server is: tls://HOST:PORT.")]
_UNITS = {"s": 1, "m": 60, "h": 3600}


@lab.command()
def certificates(
    folder: Annotated[Path, typer.Argument(help="Where the files are put; a CA that is there is used.")],
    board: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=HOSTS", help="A board: its name, and the hosts by which users reach it; repeatable."
        ),
    ] = ["localhost=localhost,127.0.0.1"],  # noqa: B006
    user: Annotated[list[str], typer.Option(metavar="NAME", help="A user; repeatable.")] = ["user"],  # noqa: B006
    days: Annotated[int, typer.Option(min=1, max=3650, help="Days that they are valid.")] = 825,
) -> None:
    """Make a CA, and certificates of boards and users that it signs.

    Keep ca.key where no board is: who has it can be any user.
    """
    from ..certificates import make

    for path in make(folder, boards=board, users=user, days=days):
        say(path)


@lab.command()
def status(address: AddressArgument) -> None:
    """Tell who has a board, until when, and how many wait."""
    _show(_ask(address, "status"))


@lab.command()
def reserve(
    address: AddressArgument,
    time: Annotated[
        str, typer.Option("--for", metavar="TIME", help="For how long, from now on: 90s, 30m or 2h.")
    ] = "1h",
) -> None:
    """Reserve a board, at most for a day, and print the variable by which commands are its user."""
    from ..client import LEASE, hello

    match = re.fullmatch(r"(\d{1,5})([smh])", time)
    if match is None:
        usage(f"--for {time!r} is no time", "90s, 30m or 2h")
    told = _ask(address, "reserve", seconds=float(match[1]) * _UNITS[match[2]])
    remark(f"{told.board}: {told.holder}")
    say(f"export {LEASE}={hello().lease}")


@lab.command()
def release(address: AddressArgument) -> None:
    """End the reservation of a board; the variable of `reserve` must be set."""
    _show(_ask(address, "release"))


@lab.command()
def worker(
    scheduler: Annotated[str, typer.Argument(help="The address of a Dask scheduler: tcp://HOST:PORT.")],
    device: Annotated[
        str, typer.Option("--board", metavar="BACKEND=ADDRESS", help="The board of this worker: NAME=tls://HOST:PORT.")
    ],
    name: Annotated[str, typer.Option(help="The board's name in reports; else its address.")] = "",
    kind: Annotated[
        str, typer.Option(help="The kind of device, for runs that want one: `conform --device kind=NAME`.")
    ] = "",
) -> None:
    """Put a board behind a Dask scheduler: run a Dask worker with one thread for it, and start it again when it ends.

    The worker has the resource BACKEND, and BACKEND.KIND with a kind of device.
    """
    from ..workers import keep

    keep(scheduler, device, name=name, kind=kind)


def _ask(address: str, do: str, **facts: Any) -> Welcome:
    from ..addresses import Address
    from ..client import greet, hello

    wire, told = greet(Address.of(address), hello(do, **facts))
    wire.close()
    return told


def _show(told: Welcome) -> None:
    say(f"board {told.board}, backend {told.backend} {told.version}, {told.time_limit:g} s for a request")
    say(f"taken by {told.holder}; {told.waiting} wait" if told.holder else "free")
