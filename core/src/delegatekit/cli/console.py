"""Where commands print: results on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from delegatekit_api import hookimpl
from delegatekit_api.observers import StageEvent

out = Console()
err = Console(stderr=True)


def usage(message: str) -> NoReturn:
    """Say what is wrong with the command line, and end with exit code 2."""
    err.print(f"[bold red]usage:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(2)


@contextmanager
def progress() -> Iterator[None]:
    """A progress line on stderr while lowering takes long."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from ..plugins import add_observer

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        task = progress.add_task("starting", total=None)

        class Shown:
            """Shows each stage as it begins and moves on."""

            @hookimpl
            def on_stage(self, event: StageEvent) -> None:
                count = f" {event.done}/{event.total}" if event.total else ""
                progress.update(task, description=f"{event.stage} {event.method}{count}")

        remove = add_observer(Shown())
        try:
            yield
        finally:
            remove()
