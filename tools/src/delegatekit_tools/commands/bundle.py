"""`delegatekit bundle`: attach inputs and expected outputs to a program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit import cli

if TYPE_CHECKING:
    from delegatekit.pipeline import Source

    from ..bundles.cases import Case, Signature


@cli.results_alone
def bundle(
    file: Annotated[
        Path,
        typer.Argument(help="A .pte file; or a .bpte, whose cases stay, and these are added.", callback=cli.given_file),
    ],
    inputs: Annotated[
        list[str],
        typer.Argument(help="Inputs in order: .npy, .pt or image files; further ones are further cases."),
    ] = [],  # noqa: B006
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The .bpte file to write. By default net.bpte for net.pte.")
    ] = None,
    method: cli.MethodOption = "forward",
    expected: Annotated[
        list[str], typer.Option(help="An expected output: .npy or .pt, as many as outputs of all cases together.")
    ] = [],  # noqa: B006
    model: Annotated[
        str | None,
        typer.Option(
            help="The MODEL that the program was lowered from: expected outputs are those of eager mode, and without "
            "input files the case is its own example. Without this, the Python engine computes them."
        ),
    ] = None,
    cases: Annotated[int | None, typer.Option(min=1, max=100_000, help="Number of cases of random inputs.")] = None,
    seed: cli.SeedOption = 0,
    data: cli.DataOption = [],  # noqa: B006
    backend: cli.RunnerOption = [],  # noqa: B006
    isolate: cli.IsolateOption = [],  # noqa: B006
    trust: cli.TrustOption = False,
    as_json: cli.JsonOption = False,
) -> None:
    """Write a bundled program (.bpte): a .pte with inputs of a method and its expected outputs."""
    from delegatekit import bundle as make
    from delegatekit.files import BPTE, check_outputs
    from delegatekit.pte import read

    from ..bundles.cases import Signature

    if expected and model is not None:
        cli.usage("--expected and --model both give expected outputs", "give one of them")
    if inputs and cases is not None:
        cli.usage(
            "--cases is for random inputs, and input files are given", "the number of files gives the number of cases"
        )
    place = Path(f"{file.stem}.bpte") if output is None else output
    check_outputs(place, inputs=[file, *data, *inputs, *expected, *(cli.files_of(model) if model else ())])
    cli.question_place("--output", place, BPTE)
    with cli.progress("making the cases"):
        signature = Signature(read(file), method)
        if model is None:
            source = "the files given" if expected else "the Python engine"
            given = _given(signature, inputs, cases or 1, seed, trust=trust)
            wanted = _expected(signature, expected, len(given), trust=trust) if expected else None
            made = _cases(signature, given, wanted)
        else:
            source = f"{model} in eager mode"
            flat = _given(signature, inputs, cases or 1, seed, trust=trust) if inputs or cases else None
            made = _eager_cases(signature, cli.read_model(model, trust=trust), flat)
        found = make(file, {method: made}, data=data, backends=backend, isolate=cli.apart(isolate))
    found.save(place)
    if as_json:
        cli.print_json({"cases": found.cases, "added": {method: len(made)}, "expected": source, "file": place})
        return
    total = ", ".join(f"{name} {count}" for name, count in found.cases.items())
    cli.say(f"added {len(made)} case{'s' * (len(made) != 1)} of {method}; expected outputs: {source}")
    cli.say(f"wrote {place} ({place.stat().st_size:,} bytes; cases: {total})")


def _given(signature: Signature, paths: Sequence[str], cases: int, seed: int, *, trust: bool) -> list[list[Any]]:
    """The flat inputs of each case."""
    if not paths:
        return [cli.inputs_for(signature, (), seed=seed + number, trust=trust) for number in range(cases)]
    chunks = _chunks(paths, len(signature.inputs), f"the method takes {len(signature.inputs)} inputs")
    return [cli.inputs_for(signature, chunk, seed=seed, trust=trust) for chunk in chunks]


def _expected(signature: Signature, paths: Sequence[str], cases: int, *, trust: bool) -> list[list[Any]]:
    count = signature.output_count
    if len(paths) != cases * count:
        wanted = f"{cases} case{'s' * (cases != 1)} of {count} output{'s' * (count != 1)}"
        cli.usage(f"{wanted} need {cases * count} files --expected, {len(paths)} are given")
    return [
        [cli.read_value(Path(path), None, trust=trust) for path in chunk]
        for chunk in _chunks(paths, count, f"the method has {count} outputs")
    ]


def _chunks(paths: Sequence[str], size: int, what: str) -> Iterator[Sequence[str]]:
    if not size or len(paths) % size:
        cli.usage(f"{what}, {len(paths)} files are given")
    return (paths[start : start + size] for start in range(0, len(paths), size))


def _cases(signature: Signature, given: Sequence[list[Any]], wanted: Sequence[list[Any]] | None) -> list[Case]:
    from ..bundles import Case

    return [
        Case(*signature.unflatten(flat), expected=None if wanted is None else wanted[number])
        for number, flat in enumerate(given)
    ]


def _eager_cases(signature: Signature, model: Source, given: Sequence[list[Any]] | None) -> list[Case]:
    from ..bundles.eager import Eager

    eager = Eager(model.model, model.inputs, model.kwargs, signature.name)
    calls = [eager.example] if given is None else [signature.unflatten(flat) for flat in given]
    return [eager.case(args, kwargs) for args, kwargs in calls]
