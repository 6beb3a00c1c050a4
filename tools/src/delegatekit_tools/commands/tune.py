"""`delegatekit tune`: measure a model for `lower -b auto`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit.cli import (
    BackendOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    SettingOption,
    TrustOption,
    default_place,
    files_of,
    print_json,
    question_place,
    read_model,
    results_alone,
    say,
    settings,
    show,
    tuned,
    usage,
    with_dynamic_shapes,
    without_auto,
)


@results_alone
def tune(
    model: ModelArgument,
    backend: BackendOption,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .json file to write; measurements of other models that it has are kept. By default "
            "net-measurements.json for net.pt2 or net:make.",
        ),
    ] = None,
    dynamic: DynamicOption = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Timed calls, of which the median is used.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, max=100_000, help="Warm-up calls.")] = 3,
    clock: Annotated[
        str, typer.Option(help="wall, or CPU: the CPU time of this process, for machines with other work.")
    ] = "wall",
    units: Annotated[bool, typer.Option("--units", help="Show the time of each operator on each backend.")] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Time a model's operators on backends that run here (-b auto: all), for `lower -b auto --measurements FILE`."""
    from delegatekit.files import JSON, check_outputs

    from ..placement import CLOCKS, Measurements

    place = default_place(model, "-measurements.json") if output is None else output
    check_outputs(place, inputs=files_of(model))
    question_place("--output", place, JSON)
    known = Measurements.load(place) if place.is_file() else None
    if clock not in CLOCKS:
        usage(f"--clock {clock!r} is neither {' nor '.join(CLOCKS)}")
    found = tuned(
        with_dynamic_shapes(read_model(model, trust=trust), dynamic),
        backend,
        options=settings(option, without_auto(backend)),
        runs=runs,
        warm_up=warm_up,
        clock=clock,
    )
    (found if known is None else known.joined(found)).save(place)
    if as_json:
        print_json(found)
        return
    show(found, str)
    if units:
        show(found, Measurements.units_text)
    say(f"wrote {place}")
