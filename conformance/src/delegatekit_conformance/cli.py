"""`delegatekit conform NAME`: run the suite against an installed backend. Imports nothing heavy before it is called."""

from __future__ import annotations

import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, NoReturn

import typer


def conform(
    backend: Annotated[str, typer.Argument(help="Name of the backend, as `delegatekit backends` lists it.")],
    select: Annotated[str, typer.Option(metavar="PATTERN", help="Run only the cases whose name matches.")] = "*",
    json: Annotated[Path | None, typer.Option(help="Write outcomes and versions to this file.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="So many cases at a time.")] = 2,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one case may take.")] = 120.0,
) -> None:
    """Run the conformance suite against a backend. Exit code 1 if it finds a fault."""
    from rich.console import Console
    from rich.progress import track

    from delegatekit import discovery

    from .cases import CASES
    from .report import print_report, write_json
    from .runner import run_cases
    from .verdicts import tolerance

    installed = discovery.backends(check=False)
    if backend not in installed:
        _usage(f"no backend {backend!r} is installed (installed: {', '.join(installed) or 'none'})")
    names = [case.name for case in CASES if fnmatch(case.name, select)]
    if not names:
        _usage(f"no case matches {select!r}; there are: {'; '.join(case.name for case in CASES)}")
    if json is not None and (json.is_dir() or not json.parent.is_dir()):
        _usage(f"{json} is a folder" if json.is_dir() else f"the folder {json.parent} does not exist")
    chosen = discovery.get_backend(backend)  # says why if it cannot be used
    tolerance("float32", chosen.description.compute_precision, 1)  # says so if the precision is unknown
    runtime = chosen.runtime_availability()
    if not runtime.available:
        typer.echo(
            f"the runtime of {backend} is not available: {runtime.reason}\n"
            "  -> cases are compiled only; no result of a delegate is compared",
            err=True,
        )
    start = time.perf_counter()
    running = run_cases(backend, names, jobs=jobs, timeout=timeout)
    try:
        progress = track(running, "running cases", total=len(names), console=Console(stderr=True), transient=True)
        outcomes = sorted(progress, key=lambda outcome: names.index(outcome.case))
    finally:
        running.close()  # ends the workers after an interrupt
    seconds = time.perf_counter() - start
    print_report(Console(), chosen, outcomes, seconds)
    if json is not None:
        write_json(json, chosen, outcomes, seconds)
    if any(outcome.verdict.is_fault for outcome in outcomes):
        raise typer.Exit(1)


def _usage(message: str) -> NoReturn:
    typer.echo(f"usage: {message}", err=True)
    raise typer.Exit(2)
