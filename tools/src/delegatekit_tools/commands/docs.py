"""`delegatekit docs`: write the pages about a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli


@cli.results_alone
def docs(
    backend: Annotated[str, typer.Argument(help="Name of the backend.", autocompletion=cli.installed_backends)],
    folder: Annotated[Path, typer.Option("--output", "-o", help="The folder of the pages.")] = Path("docs"),
    executorch: Annotated[
        bool, typer.Option(help="A page with the sections by which ExecuTorch describes its backends, too.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 if pages are not what the backend says.")
    ] = False,
) -> None:
    """Write the pages about an installed backend: operators, options, targets, quantization schemes."""
    from delegatekit.plugins import get_backend

    from ..documentation import pages, stale, written

    found = pages(get_backend(backend), executorch=executorch)
    old = stale(found, folder)
    if check:
        if old:
            cli.say(f"not what {backend} says: {', '.join(str(folder / name) for name in old)}")
            raise typer.Exit(1)
        return
    written(found, folder)
    for name in found:
        cli.say(f"{folder / name}{'' if name in old else ', as it was'}")
