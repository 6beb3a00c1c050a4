"""`delegatekit compare`: eager and a lowered program side by side."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from delegatekit import cli

from ..arguments import Comparing

if TYPE_CHECKING:
    from ..compare import Comparison

#: How to get the program that shows a divergence.
_HOW: Final = "the same command with --snippet FILE.py"


@cli.results_alone
@cli.command(
    Comparing,
    against=cli.texts(metavar="NAMES", callback=cli.split_names, autocompletion=cli.installed_backends),
    method=cli.option(type=str),
    scheme=cli.option(type=str),
    seed=cli.option(min=-(2**63), max=2**64 - 1),
    tighten=cli.option(min=1.0),
    thorough=cli.option(),
)
def compare(
    said: cli.Said,
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="FILE",
            help="An input of the call: .npy, .pt or image; repeat in order. By default the example inputs.",
        ),
    ] = [],  # noqa: B006
    rows: Annotated[int, typer.Option(min=0, help="Rows of the table; 0 for all.")] = 10,
    snippet: Annotated[
        Path | None, typer.Option(help="Write the program that shows the divergence to this .py file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with the graph, colored by the errors, to this .html file.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Partitions to compile in parallel.")] = 1,
    cache: Annotated[bool, typer.Option(help="Reuse cached compilations.")] = True,
    as_json: cli.JsonOption = False,
) -> None:
    """Run a lowered model beside PyTorch and name the first operator that diverges; exit code 1 if one does."""
    from delegatekit import Compiling
    from delegatekit import compare as compare_model
    from delegatekit.files import HTML, PY, check_outputs, write_text

    from ..compare.values import specs_of, wanted_method

    check_outputs(snippet, None if snippet is None else snippet.with_suffix(".pt"), html, inputs=[*said.files, *inputs])
    cli.question_place("--snippet", snippet, PY)
    cli.question_place("--html", html, HTML)
    with cli.progress():
        settings, programs = said.settings(), said.source().programs()
        name = settings["method"] = wanted_method(programs, settings["method"])
        values = cli.read_inputs(specs_of(programs[name]), inputs, trust=said.trust) if inputs else None
        compiling = Compiling(jobs=jobs, cache=cache)
        found = compare_model(programs, **settings, values=values, compiling=compiling)
    written = list(_write(found, snippet))
    if html is not None:
        write_text(html, found.html(f"{said.model} on {', '.join(said.backends)}"))
        written.append(html)
    if as_json:
        first = found.first and dataclasses.replace(found.first, tensors={})
        told = vars(dataclasses.replace(found, first=first))
        cli.print_json({name: value for name, value in told.items() if name != "lowered"})
    else:
        cli.show(found, type(found).text, rows=rows or None, snippet=_HOW if snippet is None else "")
        for path in written:
            cli.say(f"wrote {path}")
    if not found.right:
        raise typer.Exit(cli.FAILED)


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
