"""`delegatekit tune`: measure a model for `lower -b auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli

from ..arguments import Measuring


@cli.results_alone
@cli.command(
    Measuring,
    runs=cli.option(min=1, max=100_000),
    warm_up=cli.option(min=0, max=100_000),
    clock=cli.option(),
)
def tune(
    said: cli.Said,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .json file to write; measurements of other models that it has are kept. By default "
            "net-measurements.json for net.pt2 and models.py:net.",
        ),
    ] = None,
    units: Annotated[bool, typer.Option("--units", help="Show the time of each operator on each backend.")] = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Time a model's operators on backends that run here (-b auto: all), for `lower -b auto --measurements FILE`."""
    from delegatekit.files import JSON, check_outputs

    from ..placement import CLOCKS, Measurements

    place = cli.default_place(said.model, "-measurements.json") if output is None else output
    check_outputs(place, inputs=said.files)
    cli.question_place("--output", place, JSON)
    known = Measurements.load(place) if place.is_file() else None
    settings = said.settings()
    if settings["clock"] not in CLOCKS:
        cli.usage(f"--clock {settings['clock']!r} is neither {' nor '.join(CLOCKS)}")
    found = cli.tuned(said.source(), **settings)
    (found if known is None else known.joined(found)).save(place)
    if as_json:
        cli.print_json(found)
        return
    cli.show(found, str)
    if found.nothing_delegated:
        cli.say("nothing is delegated: the runtime's own kernels are the fastest", "bold red")
    if units:
        cli.show(found, Measurements.units_text)
    cli.say(f"wrote {place}")
