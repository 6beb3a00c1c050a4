"""`delegatekit sweep`: lower a model for every target of several backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit import cli
from delegatekit.pipeline import Source

from ..arguments import Sweeping

if TYPE_CHECKING:
    from ..sweep import Row


@cli.results_alone
@cli.command(
    Sweeping,
    targets=cli.texts("--target", metavar="TARGET", help="Repeat for more."),
    schemes=cli.texts("--scheme", metavar="SCHEME", help="Repeat for more: a row for each."),
    runs=cli.option(min=1, max=100_000),
    results=cli.option(type=Path),
    retry=cli.option(),
    jobs=cli.option("--jobs", "-j", type=int, min=1),
    scheduler=cli.option(metavar="ADDRESS"),
    time_limit=cli.option(min=1.0, metavar="SECONDS"),
)
def sweep(
    said: cli.Said,
    samples: Annotated[
        Path | None,
        typer.Option(
            help="A .pt or .npz file of inputs, as for `quantize --calibration`, on which outputs are compared."
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A .pt or .npz file of inputs to calibrate with; by default the samples.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the table to this .html file.")] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Lower a model for every target of several backends, and compare the results in one table."""
    from delegatekit import sweep as sweep_model
    from delegatekit.files import HTML, check_outputs, write_text

    settings = said.settings()
    check_outputs(html, settings["results"], inputs=[*said.files, samples, calibration])
    cli.question_place("--html", html, HTML)
    if settings["retry"] and settings["results"] is None:
        cli.usage("--retry is for the rows of a --results file")
    source = said.source()
    found = sweep_model(
        **vars(source),
        **settings,
        samples=_read(samples, source, trust=said.trust),
        calibration=_read(calibration, source, trust=said.trust),
        each=_tell,
    )
    if html is not None:
        write_text(html, found.html(f"{said.model} on {', '.join(said.backends)}"))
    if as_json:
        cli.print_json(found.rows)
        return
    cli.show(found, str)
    if html is not None:
        cli.say(f"wrote {html}")


def _tell(row: Row) -> None:
    from ..sweep.table import name_of

    cli.remark(f"{name_of(row)}: {row.outcome}", "dim")


def _read(path: Path | None, model: Source, *, trust: bool) -> list[tuple[Any, ...]] | None:
    from torch.export import ExportedProgram

    from delegatekit.quantization import read_calibration

    if path is None:
        return None
    program, example = model.model, model.inputs
    if example is None:
        if not isinstance(program, ExportedProgram) or program.example_inputs is None:
            cli.usage("--samples and --calibration are for models of one method with example inputs")
        example = program.example_inputs[0]
    return read_calibration(path, example, trust=trust)
