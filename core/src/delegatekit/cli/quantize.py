"""`delegatekit quantize`: quantize a model for a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .arguments import JsonOption, ModelArgument, SettingOption, TrustOption, installed_backends, settings
from .console import print_json, say, show, usage
from .dynamic import DynamicOption, with_dynamic_shapes
from .model import files_of, read_model
from .places import default_place, question_place


def _single(given: str) -> str:
    if "," in given:
        usage(f"--backend {given!r} names several backends", "a model is quantized for one: quantize it once for each")
    return given


def quantize(
    model: ModelArgument,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            "-b",
            callback=_single,
            autocompletion=installed_backends,
            help="The backend whose scheme is used.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .pt2 file to write, for `delegatekit lower`. By default net-quantized.pt2 for net.pt2, net:make.",
        ),
    ] = None,
    scheme: Annotated[
        str | None, typer.Option(help="A scheme of the backend (`delegatekit schemes`); without it, the first.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A .pt file with a list of inputs, or a .pt or .npz file with the samples of each input as one tensor "
            "along its first axis."
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, help="Calibrate with so many random inputs: to try things out only.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Measure each layer against float.")] = False,
    keep_float: Annotated[
        list[str],
        typer.Option(metavar="SELECTOR", help="Module path or operator that stays in float; repeat for more."),
    ] = [],  # noqa: B006
    keep_worst: Annotated[int, typer.Option(min=0, help="Keep so many of the least exact layers in float.")] = 0,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Take the layers' mean errors out of their biases.")
    ] = False,
    group_size: Annotated[int | None, typer.Option(min=1, help="Size of the weights' groups.")] = None,
    dynamic: DynamicOption = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Quantize a model for a backend and write a .pt2 file; tells which layers stay in float, and why."""
    from ..files import PT2, check_outputs
    from ..quantization.commands import quantize_model

    if calibration is not None and random is not None:
        usage("--calibration and --random are both given", "random inputs are to try things out: choose one")
    if calibration is None and random is None:
        usage("give --calibration FILE, or --random COUNT to try things out")
    place = default_place(model, "-quantized.pt2") if output is None else output
    check_outputs(place, inputs=[*files_of(model), calibration])
    question_place("--output", place, PT2)
    found = quantize_model(
        with_dynamic_shapes(read_model(model, trust=trust), dynamic),
        trust=trust,
        calibration=calibration,
        random=random,
        output=place,
        backend=backend,
        scheme=scheme,
        keep_float=keep_float,
        keep_worst_float=keep_worst,
        measure=report,
        correct_bias=correct_bias,
        group_size=group_size,
        options=settings(option, [backend]).get(backend),
    )
    if as_json:
        print_json(found)
        return
    show(found, str)
    size = f"{place.stat().st_size:,} bytes"
    say(f"wrote {place} ({size})")
