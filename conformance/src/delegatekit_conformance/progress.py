"""Progress of a run on stderr: a progress bar on a terminal, else a line a minute; and remarks for a person."""

from __future__ import annotations

import time
from collections.abc import Mapping
from threading import Event, Thread

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from delegatekit.cli.console import remark
from delegatekit.text import one_line
from delegatekit.text.terminal import Terminal

from .outcome import CaseResult
from .session import Listener

#: Seconds between two lines where there is no terminal: logs stay short, and show that the run continues.
_PAUSE = 60.0


class Bar(Listener):
    """Shows a progress bar if stderr is a terminal; if not, a line every `pause` seconds, and one for each fault."""

    def __init__(self, pause: float = _PAUSE) -> None:
        console = Terminal(stderr=True)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[faults]} faulty", markup=False),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._results: Mapping[str, CaseResult] = {}
        self._lines = None if console.is_terminal else _Lines(pause)

    def begin(self, total: int, results: Mapping[str, CaseResult]) -> None:
        """Show the bar."""
        self._results = results
        self._progress.add_task("cases", total=total, completed=len(results), faults=0)
        self._progress.start()
        if self._lines is not None:
            self._lines.begin(total, results)

    def result(self, result: CaseResult) -> None:
        """Advance the bar."""
        faults = sum(one.is_fault for one in self._results.values())
        task = self._progress.task_ids[0]
        self._progress.update(task, advance=1, description=one_line(result.case)[:40].ljust(40), faults=faults)
        if self._lines is not None and result.is_fault:
            details = (fault.detail for fault in result.faults if fault.verdict is result.verdict)
            remark(one_line(f"{result.verdict.value} {result.case}: {next(details, '')}"))

    def note(self, text: str) -> None:
        """Print it."""
        remark(text)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.stop()
        if self._lines is not None:
            self._lines.end()


class _Lines:
    """Reports the progress of a run from time to time, also while no case ends."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._over = Event()

    def begin(self, total: int, results: Mapping[str, CaseResult]) -> None:
        Thread(target=self._tell, args=(total, results, time.monotonic()), daemon=True, name="progress").start()

    def end(self) -> None:
        self._over.set()

    def _tell(self, total: int, results: Mapping[str, CaseResult], start: float) -> None:
        while not self._over.wait(self._pause):
            done = list(results.values())
            minutes = (time.monotonic() - start) / 60
            faults = sum(one.is_fault for one in done)
            remark(f"{len(done):,} of {total:,} cases, {faults} faulty, after {minutes:.0f} min")
