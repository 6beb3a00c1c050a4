"""`delegatekit conform NAME`: run the suite against an installed backend. Imports nothing heavy before it is called."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer


def conform(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    select: Annotated[str, typer.Option(help="Run only the cases whose name matches: 'conv*'.")] = "*",
    json: Annotated[Path | None, typer.Option(help="Write outcomes and versions to this file.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="So many cases at a time.")] = 2,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one case may take.")] = 120.0,
) -> None:
    """Run the conformance suite against a backend; fails if it finds a fault."""
    from rich.console import Console
    from rich.progress import track

    from delegatekit import discovery

    from .cases import CASES
    from .report import print_report, write_json
    from .runner import run_cases

    discovery.get_backend(backend)  # says why if it cannot be used
    names = [case.name for case in CASES if fnmatch(case.name, select)]
    if not names:
        typer.echo(f"no case matches {select!r}; there are: {', '.join(case.name for case in CASES)}", err=True)
        raise typer.Exit(2)
    if json is not None and not json.parent.is_dir():
        typer.echo(f"the folder {json.parent} does not exist", err=True)
        raise typer.Exit(2)
    running = run_cases(backend, names, jobs=jobs, timeout=timeout)
    progress = track(running, "running cases", total=len(names), console=Console(stderr=True), transient=True)
    outcomes = sorted(progress, key=lambda outcome: names.index(outcome.case))
    print_report(Console(), backend, outcomes)
    if json is not None:
        write_json(json, backend, outcomes)
    if any(outcome.verdict.is_fault for outcome in outcomes):
        raise typer.Exit(1)
