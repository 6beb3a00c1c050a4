"""`delegatekit verify`: run the cases of a bundled program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from delegatekit import cli


@cli.results_alone
def verify(
    file: Annotated[Path, typer.Argument(help="A .bpte file.", callback=cli.given_file)],
    method: Annotated[list[str], typer.Option(help="A method whose cases are run, by default all; repeat.")] = [],  # noqa: B006
    rtol: Annotated[float, typer.Option(min=0.0, help="Relative tolerance of floats.")] = 1e-3,
    atol: Annotated[float, typer.Option(min=0.0, help="Absolute tolerance of floats and integers.")] = 1e-5,
    data: cli.DataOption = [],  # noqa: B006
    backend: cli.RunnerOption = [],  # noqa: B006
    isolate: cli.IsolateOption = [],  # noqa: B006
    time_limit: cli.TimeLimitOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Run the cases of a bundled program (.bpte) on the Python engine and compare; exit code 1 if one differs."""
    from delegatekit import verify as run_cases
    from delegatekit.pte import naming

    from ..bundles import read_bundle

    with naming(file):
        count = sum(map(len, read_bundle(file).cases.values()))
    limit = None if time_limit is None else time_limit * max(1, count)
    with cli.progress("running the cases"), cli.ended_after(limit, f"cases of {file}"):
        found = run_cases(
            file,
            methods=method,
            rtol=rtol,
            atol=atol,
            data=data,
            backends=backend,
            isolate=cli.apart(isolate),
            time_limit=time_limit,
        )
    if as_json:
        cli.print_json(found)
    else:
        cli.show(found, str)
    if not found.passes:
        raise typer.Exit(1)
