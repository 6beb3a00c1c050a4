"""`delegatekit diff`: two files side by side."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from delegatekit import cli

if TYPE_CHECKING:
    from ..differences.finding import Timing


@cli.results_alone
def diff(
    before: Annotated[Path, typer.Argument(help="A .pte or .bpte file.", callback=cli.given_file)],
    after: Annotated[Path, typer.Argument(help="The file to compare with it.", callback=cli.given_file)],
    debug_maps: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar="BEFORE AFTER",
            help="The JSON files that `lower --debug-map` wrote: they tell which operators moved between backends.",
        ),
    ] = None,
    runs: Annotated[int, typer.Option(min=0, max=100_000, help="Calls to time of each, in turns; 0 runs nothing.")] = 0,
    inputs: Annotated[
        list[str],
        typer.Option("--input", metavar="FILE", help="An input to time them on: .npy, .pt or image; repeat in order."),
    ] = [],  # noqa: B006
    method: Annotated[str, typer.Option(help="The method to time.")] = "forward",
    seed: cli.SeedOption = 0,
    trust: cli.TrustOption = False,
    html: Annotated[Path | None, typer.Option(help="Write a page with the graphs of both to this .html file.")] = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show two files side by side: what moved from one backend to another, what grew, and what became slower."""
    from delegatekit.files import HTML, check_outputs, write_text

    from ..differences import diff as find

    check_outputs(html, inputs=[before, after, *(debug_maps or ()), *inputs])
    cli.question_place("--html", html, HTML)
    if inputs and not runs:
        cli.usage("--input is for the calls that --runs times")
    maps = None if debug_maps is None else (_read(debug_maps[0]), _read(debug_maps[1]))
    timing = _timing(before, after, method, inputs, runs, seed, trust=trust) if runs else None
    found = find(before, after, debug_maps=maps, timing=timing)
    if html is not None:
        write_text(html, found.html(f"{before.name} and {after.name}"))
    if as_json:
        cli.print_json({name: value for name, value in vars(found).items() if name != "graphs"})
        return
    cli.show(found, type(found).text)
    if html is not None:
        cli.say(f"wrote {html}")


def _timing(before: Path, after: Path, method: str, inputs: list[str], runs: int, seed: int, *, trust: bool) -> Timing:
    from delegatekit import load

    from ..differences.finding import Timing

    programs = load(before), load(after)
    values = cli.inputs_for(programs[0][method], inputs, seed=seed, trust=trust)
    return Timing(*programs, method, values, runs)


def _read(path: Path) -> Mapping[str, Any]:
    from delegatekit.files import open_file
    from delegatekit_toolkit.json_text import parse_object

    with open_file(path) as file:
        return parse_object(file.read(), str(path), hint="`lower --debug-map` writes a debug map")
