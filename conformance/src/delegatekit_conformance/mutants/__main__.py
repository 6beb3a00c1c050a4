"""`python -m delegatekit_conformance.mutants BACKEND`: the mutation score of the suite on a plugin."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from delegatekit_api import DelegateKitError


def run(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    count: Annotated[int, typer.Option(min=1, help="Number of mutants drawn.")] = 150,
    seed: Annotated[int, typer.Option(help="The same seed gives the same mutants.")] = 0,
    rooms: Annotated[
        list[str], typer.Option(metavar="ROOM", help="Only mutants of this room of the plugin; repeat for more.")
    ] = [],  # noqa: B006  (typer copies it)
    profile: Annotated[
        str, typer.Option(help="quick, or default: survivors of quick are tried with the default profile's examples.")
    ] = "quick",
    jobs: Annotated[int, typer.Option(min=1, help="Number of mutants tried in parallel.")] = 1,
    shard: Annotated[str, typer.Option(metavar="I/N", help="Try the I-th of N parts.")] = "",
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep finished mutants in this file, and do not try those in it."),
    ] = None,
    scheduler: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Run on a Dask cluster whose workers have a resource NAME.")
    ] = "",
    seconds_per_mutant: Annotated[
        float, typer.Option(min=1, help="CPU seconds of examples that a mutant is tried with, for each profile.")
    ] = 60.0,
    select: Annotated[
        list[str], typer.Option(metavar="PATTERN", help="Only cases whose name matches, or begins so; repeat for more.")
    ] = [],  # noqa: B006
    option: Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="An option of the backend; repeatable.")] = [],  # noqa: B006
    json: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the score as JSON.")] = None,
    names_only: Annotated[bool, typer.Option("--list", help="Print the mutants, and try none.")] = False,
    unreached: Annotated[
        bool, typer.Option("--unreached", help="Print the statements that no example reaches, and try no mutants.")
    ] = False,
) -> None:
    """Change a plugin in one place after the other, and count the mutants that the conformance suite finds."""
    from delegatekit.cli.console import remark, say

    from ..cli import pairs, parse_shard
    from .campaign import Campaign, Request
    from .page import table
    from .score import write

    request = Request(
        backend,
        count=count,
        seed=seed,
        rooms=tuple(rooms),
        profile=profile,
        jobs=jobs,
        shard=parse_shard(shard) or (1, 1),
        resume=resume,
        scheduler=scheduler,
        seconds=seconds_per_mutant,
        select=tuple(select),
        options=pairs(option, "--option"),
    )
    campaign = Campaign(request, tell=say)
    if names_only:
        for mutant in campaign.mutants:
            say(f"{mutant.name}  |  {mutant.text}")
        return
    if unreached:
        for statement in campaign.unreached():
            say(f"{statement.file}:{statement.line}: {statement.text}")
        return
    score = campaign.run()
    for line in table(score):
        say(line)
    if json is not None:
        write(json, score)
        remark(f"wrote {json}")


def command(function: Callable[..., None]) -> None:
    """Run a function as a command; an error is one line, and exit code 2."""
    from delegatekit.cli.console import remark

    try:
        typer.run(function)
    except DelegateKitError as error:
        remark(f"error: {error}")
        sys.exit(2)


if __name__ == "__main__":
    command(run)
