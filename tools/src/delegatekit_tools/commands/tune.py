"""`delegatekit tune`: measure a model for `lower -b auto`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

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
    remark,
    results_alone,
    say,
    settings,
    show,
    usage,
    with_dynamic_shapes,
)

if TYPE_CHECKING:
    from ..placement import Measurements


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
    runs: Annotated[int, typer.Option(min=1, max=100_000, help="Calls that are timed; the median counts.")] = 20,
    warm_up: Annotated[int, typer.Option(min=0, max=100_000, help="Calls before them.")] = 3,
    clock: Annotated[
        str, typer.Option(help="wall, or CPU: the CPU time of this process, for machines with other work.")
    ] = "wall",
    units: Annotated[bool, typer.Option("--units", help="Show what each operator takes on each backend.")] = False,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Time a model's operators on backends that run here (-b auto: all), for `lower -b auto --measurements FILE`."""
    from delegatekit.files import JSON, check_outputs

    from ..placement import Measurements

    place = default_place(model, "-measurements.json") if output is None else output
    check_outputs(place, inputs=files_of(model))
    question_place("--output", place, JSON)
    known = Measurements.load(place) if place.is_file() else None
    found = measured(
        with_dynamic_shapes(read_model(model, trust=trust), dynamic),
        backend,
        settings(option, [name for name in backend if name != "auto"]),
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


def measured(
    model: Mapping[str, Any], backends: Sequence[str], options: Mapping[str, Mapping[str, Any]], **more: Any
) -> Measurements:
    """What `delegatekit.tune` measures; tells on stderr what it does, and how long it took."""
    from delegatekit import tune as tune_model

    if more.get("clock", "wall") not in ("wall", "CPU"):
        usage(f"--clock {more['clock']!r} is neither wall nor CPU")
    start = monotonic()

    def tell(text: str) -> None:
        remark(text, "dim")

    found = tune_model(**model, backends=backends, options=options, say=tell, **more)
    tell(f"tuned in {monotonic() - start:.1f} s")
    return found
