"""`delegatekit new`: make the project of a backend, or bring one to the present template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli


@cli.results_alone
def new(
    name: Annotated[
        str | None, typer.Argument(help="Name of the backend, by which users choose it: acme. Not with --update.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The project's folder: a new one, by default delegatekit-NAME here."),
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--template",
            "-t",
            help="What the project begins with: device, hardware with a format of its own and kernels, or library, "
            "a vendor's graph compiler or inference library, here ONNX Runtime. By default device.",
        ),
    ] = "",
    native: Annotated[
        bool,
        typer.Option("--native", help="Kernels in C, too: built by CMake, called by the runtime. Of device alone."),
    ] = False,
    update: Annotated[
        bool,
        typer.Option("--update", help="Bring the project here, or in -o, to the present template; changes stay."),
    ] = False,
) -> None:
    """Make a complete project of a backend: it installs, passes its tests and conformance, and is yours to change."""
    from .. import project

    if update:
        if name is not None or native or template:
            cli.usage(
                "--update takes no name, no --template and no --native: the project knows them",
                "delegatekit new --update",
            )
        found = project.update(folder or Path())
        what = f"template {found.template} {found.version}"
        if found.before == found.version:
            cli.say(f"{found.name} was made by the present {what}: nothing to do")
            return
        cli.say(f"{found.name}: {found.before} -> {what}; `git diff` shows what changed")
        for path in found.conflicts:
            cli.say(f"both you and the template changed the same lines: {path}")
        if found.conflicts:
            raise typer.Exit(1)
        return
    if name is None:
        cli.usage("there is no name", "delegatekit new acme")
    place = folder or Path(f"delegatekit-{name.replace('_', '-')}")
    made = project.create(name, place, template=template or project.DEFAULT, native=native)
    cli.say(f"{made.folder}: the project of the backend {made.name}, by template {made.template} {made.version}")
    for line in (
        f"cd {made.folder}",
        "pip install -e '.[dev]'",
        f"delegatekit docs {made.name}",
        "git init && git add . && git commit -m 'Begin'",
        "pytest",
        f"delegatekit conform {made.name} --quick",
    ):
        cli.say(f"  {line}")
