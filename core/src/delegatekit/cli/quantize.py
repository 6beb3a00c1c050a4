"""`delegatekit quantize`: quantize a model for a backend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..pipeline import Quantizing
from .arguments import JsonOption, Said, command, completed_settings, installed_backends, option, settings, texts
from .console import print_json, progress, say, show, usage
from .places import default_place, question_place


def _single(given: str) -> str:
    if "," in given:
        usage(f"--backend {given!r} names several backends", "a model is quantized for one: quantize it once for each")
    return given


@command(
    Quantizing,
    backend=option("--backend", "-b", type=str, callback=_single, autocompletion=installed_backends),
    scheme=option(type=str),
    keep_float=texts(metavar="SELECTOR", help=": a module path or operator; repeat for more."),
    keep_worst_float=option("--keep-worst", min=0),
    measure=option("--report"),
    correct_bias=option(),
    group_size=option(type=int, min=1),
    options=texts(
        "--option",
        read=lambda given, names: settings(given, names).get(names[0]),
        metavar="SETTING",
        autocompletion=completed_settings,
        help=": KEY=VALUE or NAME.KEY=VALUE.",
    ),
)
def quantize(
    said: Said,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The .pt2 file to write, for `delegatekit lower`. By default net-quantized.pt2 for nets.py:net.",
        ),
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A .pt file with a list of inputs, or a .pt or .npz file with the samples of each input as one tensor "
            "along its first axis; for several methods, a .pt file with a dict of these by method."
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, help="Calibrate with so many random inputs: to try things out only.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Quantize a model for a backend and write a .pt2 file; tells which layers stay in float, and why."""
    from ..files import PT2, check_outputs
    from ..quantization.commands import as_text, quantize_model

    if calibration is not None and random is not None:
        usage("--calibration and --random are both given", "random inputs are to try things out: choose one")
    if calibration is None and random is None:
        usage("give --calibration FILE, or --random COUNT to try things out")
    place = default_place(said.model, "-quantized.pt2") if output is None else output
    check_outputs(place, inputs=[*said.files, calibration])
    question_place("--output", place, PT2)
    given = said.settings()
    with progress("quantize"):
        found = quantize_model(
            said.source(), trust=said.trust, calibration=calibration, random=random, output=place, **given
        )
    if as_json:
        print_json(found)
        return
    show(found, as_text)
    say(f"wrote {place} ({place.stat().st_size:,} bytes)")
