"""A run on the terminal while it goes on: a progress bar, and what a person should know, both on stderr."""

from __future__ import annotations

from collections.abc import Mapping

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .outcome import CaseResult
from .session import Listener


class Bar(Listener):
    """Shows a progress bar, if stderr is a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[faults]} faulty"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._results: Mapping[str, CaseResult] = {}

    def begin(self, total: int, results: Mapping[str, CaseResult]) -> None:
        """Show the bar."""
        self._results = results
        self._progress.add_task("cases", total=total, completed=len(results), faults=0)
        self._progress.start()

    def result(self, result: CaseResult) -> None:
        """Move the bar on."""
        faults = sum(one.is_fault for one in self._results.values())
        task = self._progress.task_ids[0]
        self._progress.update(task, advance=1, description=result.case[:40].ljust(40), faults=faults)

    def note(self, text: str) -> None:
        """Print it."""
        typer.echo(text, err=True)

    def end(self) -> None:
        """Take the bar away."""
        self._progress.stop()
