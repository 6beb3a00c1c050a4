"""`delegatekit sweep`: lower a model for every target of several backends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit.cli import (
    BackendOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    SettingOption,
    TrustOption,
    files_of,
    print_json,
    question_place,
    read_model,
    remark,
    results_alone,
    say,
    settings,
    show,
    usage,
    with_dynamic_shapes,
)

if TYPE_CHECKING:
    from ..sweep import Row


@results_alone
def sweep(
    model: ModelArgument,
    backend: BackendOption,
    target: Annotated[
        list[str],
        typer.Option(
            metavar="TARGET", help="A target (`delegatekit targets`), BACKEND=TARGET, or all; repeat for more."
        ),
    ] = [],  # noqa: B006
    scheme: Annotated[
        list[str],
        typer.Option(
            metavar="SCHEME",
            help="A scheme (`delegatekit schemes`), BACKEND=SCHEME, float, or auto: the backend's first scheme where "
            "it takes nothing in float. Repeat for more: a row for each.",
        ),
    ] = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    dynamic: DynamicOption = [],  # noqa: B006
    samples: Annotated[
        Path | None,
        typer.Option(
            help="A .pt or .npz file of inputs, as for `quantize --calibration`, on which outputs are compared."
        ),
    ] = None,
    calibration: Annotated[
        Path | None, typer.Option(help="A .pt or .npz file of inputs to calibrate with; by default the samples.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Calls that are timed.")] = 10,
    results: Annotated[
        Path | None, typer.Option(help="A file that keeps the rows: an interrupted sweep resumes.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make rows of the file again that failed.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the table to this .html file.")] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Rows to make in parallel; by default one per CPU.")
    ] = None,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="A Dask cluster whose workers have a resource named as the backend.")
    ] = "",
    time_limit: Annotated[float, typer.Option(min=1.0, metavar="SECONDS", help="Time limit of a row.")] = 600.0,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Lower a model for every target of several backends, and compare the results in one table."""
    from delegatekit import sweep as sweep_model
    from delegatekit.files import HTML, check_outputs, write_text

    check_outputs(html, results, inputs=[*files_of(model), samples, calibration])
    question_place("--html", html, HTML)
    if retry and results is None:
        usage("--retry is for the rows of a --results file")
    given = with_dynamic_shapes(read_model(model, trust=trust), dynamic)
    found = sweep_model(
        **given,
        backends=backend,
        targets=target,
        options=settings(option, backend),
        schemes=scheme,
        samples=_read(samples, given, trust=trust),
        calibration=_read(calibration, given, trust=trust),
        runs=runs,
        results=results,
        retry=retry,
        jobs=jobs,
        scheduler=scheduler,
        time_limit=time_limit,
        each=_tell,
    )
    if html is not None:
        write_text(html, found.html(f"{model} on {', '.join(backend)}"))
    if as_json:
        print_json(found.rows)
        return
    show(found, str)
    if html is not None:
        say(f"wrote {html}")


def _tell(row: Row) -> None:
    from ..sweep.table import name_of

    remark(f"{name_of(row)}: {row.outcome}", "dim")


def _read(path: Path | None, model: dict[str, Any], *, trust: bool) -> list[tuple[Any, ...]] | None:
    from delegatekit.quantization import read_calibration

    if path is None:
        return None
    program, example = model["model"], model.get("inputs")
    if example is None:
        if isinstance(program, dict) or getattr(program, "example_inputs", None) is None:
            usage("--samples and --calibration are for models of one method with example inputs")
        example = program.example_inputs[0]
    return read_calibration(path, example, trust=trust)
