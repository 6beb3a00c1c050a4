"""`delegatekit quantize`: quantize a model for a backend."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from .arguments import JsonOption, ModelArgument, SettingOption, TrustOption, settings
from .console import out, usage
from .model import read_model


def quantize(
    model: ModelArgument,
    backend: Annotated[str, typer.Option("--backend", "-b", help="The backend whose scheme is used.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .pt2 file to write, for `delegatekit lower`.")],
    scheme: Annotated[
        str | None, typer.Option(help="A scheme of the backend (`delegatekit schemes`); without it, the first.")
    ] = None,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A .pt file with a list of inputs, or a .pt or .npz file with the samples of each input as one tensor."
        ),
    ] = None,
    random: Annotated[
        int | None, typer.Option(min=1, help="Calibrate with so many random inputs: to try things out only.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Measure each layer against float.")] = False,
    keep_float: Annotated[
        list[str], typer.Option(help="Module path or operator that stays in float; repeat for more.")
    ] = [],  # noqa: B006
    keep_worst: Annotated[int, typer.Option(min=0, help="Keep so many of the least exact layers in float.")] = 0,
    correct_bias: Annotated[
        bool, typer.Option("--correct-bias", help="Take the layers' mean errors out of their biases.")
    ] = False,
    group_size: Annotated[int | None, typer.Option(min=1, help="Size of the weights' groups.")] = None,
    option: SettingOption = [],  # noqa: B006
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Quantize a model for a backend and write a .pt2 file; tells which layers stay in float, and why."""
    from ..files import check_outputs
    from ..quantization.commands import quantize_model

    if (calibration is None) == (random is None):
        usage("give --calibration FILE, or --random COUNT to try things out")
    check_outputs(output)
    found = quantize_model(
        read_model(model, trust=trust),
        trust=trust,
        calibration=calibration,
        random=random,
        output=output,
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
        print(json.dumps(dataclasses.asdict(found), indent=1, default=str))
        return
    out.print(str(found), markup=False, highlight=False, soft_wrap=True)
    size = f"{output.stat().st_size:,} bytes"
    out.print(f"wrote {output} ({size})", markup=False, highlight=False, soft_wrap=True)
