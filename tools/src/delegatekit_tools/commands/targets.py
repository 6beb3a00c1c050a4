"""`delegatekit targets`: list the devices that backends compile for."""

from __future__ import annotations

from typing import Annotated

import typer

from delegatekit import cli
from delegatekit.plugins import LoadedBackend, ask_all, get_backend


@cli.results_alone
def targets(
    backend: Annotated[
        str | None, typer.Argument(help="A backend; without it, all.", autocompletion=cli.installed_backends)
    ] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """List the devices that the backends compile for, and the options that choose each."""
    ask = LoadedBackend.targets
    found = {backend: ask(get_backend(backend))} if backend is not None else ask_all(ask)
    if as_json:
        cli.print_json(found)
        return
    if not any(found.values()):
        cli.say("no backend lists targets" if backend is None else f"{backend} lists no targets")
        return
    for name, items in found.items():
        width = max((len(item.name) for item in items), default=0)
        for item in items:
            chosen = " ".join(f"--option {name}.{key}={value}" for key, value in item.options.items())
            line = f"{name}: {item.name:<{width}}  {item.summary}" + (f"  ({chosen})" if chosen else "")
            cli.say(line)
