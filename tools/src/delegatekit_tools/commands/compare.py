"""`delegatekit compare`: eager and a lowered program side by side."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit.cli import (
    FAILED,
    BackendOption,
    DynamicOption,
    JsonOption,
    ModelArgument,
    OnlyOption,
    SettingOption,
    SkipOption,
    TrustOption,
    files_of,
    installed_backends,
    print_json,
    progress,
    question_place,
    read_inputs,
    read_model,
    results_alone,
    say,
    selectors,
    settings,
    show,
    split_names,
    with_dynamic_shapes,
)

if TYPE_CHECKING:
    from ..compare import Comparison


@results_alone
def compare(
    model: ModelArgument,
    backend: BackendOption,
    against: Annotated[
        list[str],
        typer.Option(
            metavar="NAMES",
            callback=split_names,
            autocompletion=installed_backends,
            help="Other backends, in priority order: name the first operator that is wrong on either.",
        ),
    ] = [],  # noqa: B006
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="FILE",
            help="An input of the call: .npy, .pt or image; repeat in order. By default the example inputs.",
        ),
    ] = [],  # noqa: B006
    method: Annotated[str | None, typer.Option(help="The method to compare, of several.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            help="Quantize first, by this scheme of the backend ('' is its first), and compare with the fake-quantized "
            "model."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=-(2**63), max=2**64 - 1, help="Seed of random inputs, for a program without examples.")
    ] = 0,
    tighten: Annotated[float, typer.Option(min=1.0, help="Divide the bounds by this.")] = 1.0,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Also try neighbors together where the outputs are right.")
    ] = False,
    dynamic: DynamicOption = [],  # noqa: B006
    option: SettingOption = [],  # noqa: B006
    only: OnlyOption = [],  # noqa: B006
    skip: SkipOption = [],  # noqa: B006
    rows: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 10,
    snippet: Annotated[
        Path | None, typer.Option(help="Write the program that shows the divergence to this .py file.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Partitions to compile in parallel.")] = 1,
    cache: Annotated[bool, typer.Option(help="Reuse cached compilations.")] = True,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a lowered model beside PyTorch and name the first operator that diverges; exit code 1 if one does."""
    from delegatekit import Compiling
    from delegatekit import compare as compare_model
    from delegatekit.edge import exported_programs
    from delegatekit.files import PY, check_outputs

    from ..compare.values import specs_of, wanted_method

    check_outputs(snippet, None if snippet is None else snippet.with_suffix(".pt"), inputs=[*files_of(model), *inputs])
    question_place("--snippet", snippet, PY)
    both = list(dict.fromkeys([*backend, *against]))
    with progress():
        given = with_dynamic_shapes(read_model(model, trust=trust), dynamic)
        programs = exported_programs(
            given["model"], given.get("inputs"), given.get("kwargs"), given.get("dynamic_shapes"), nullcontext()
        )
        name = wanted_method(programs, method)
        found = compare_model(
            programs,
            backends=backend,
            against=against,
            options=settings(option, both),
            only=selectors(only, both),
            skip=selectors(skip, both),
            scheme=scheme,
            method=name,
            values=read_inputs(specs_of(programs[name]), inputs, trust=trust) if inputs else None,
            seed=seed,
            tighten=tighten,
            thorough=thorough,
            compiling=Compiling(jobs=jobs, cache=cache),
        )
    written = _write(found, snippet)
    if as_json:
        first = found.first and dataclasses.replace(found.first, tensors={})
        print_json(dataclasses.replace(found, first=first))
    else:
        show(found, type(found).text, rows=rows or None, snippet=snippet is None)
        for path in written:
            say(f"wrote {path}")
    if not found.right:
        raise typer.Exit(FAILED)


def _write(found: Comparison, place: Path | None) -> tuple[Path, ...]:
    """Write the snippet, and its data file beside it; returns the paths. Nothing if nothing diverges."""
    import torch

    from delegatekit.files import shielded, write_files

    from ..compare.snippet import TENSORS

    first = found.first
    if place is None or first is None or not first.snippet:
        return ()
    beside = place.with_suffix(".pt")
    files: dict[Path, Any] = {}
    if first.tensors:
        tensors = dict(first.tensors)
        files[beside] = shielded(lambda file: torch.save(tensors, file))
    text = first.snippet.replace(f'"{TENSORS}"', f'"{beside.name}"').encode()
    files[place] = lambda file: file.write(text)
    write_files(files)
    return tuple(files)
