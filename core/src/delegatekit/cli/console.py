"""Where commands print: results on stdout, everything else on stderr; and how they print tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from delegatekit_api import DelegateKitError, hookimpl
from delegatekit_api.observers import StageEvent

from ..json_text import to_json
from ..misuse import Misuse

#: Terminals with fewer columns are narrow.
_NARROW: Final = 60

out = Console()
err = Console(stderr=True)


class UsageError(DelegateKitError, Misuse):
    """The command line is wrong; the command ends with exit code 2."""


def usage(message: str, hint: str | None = None) -> NoReturn:
    """Say what is wrong with the command line, and end with exit code 2."""
    raise UsageError(message, hint=hint)


def say(text: object) -> None:
    """Print a text on stdout as it is: lines are not wrapped, brackets are no markup."""
    out.print(str(text), markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    err.print(f"[bold yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def is_narrow() -> bool:
    """Whether the terminal is too narrow for tables with many columns."""
    return out.width < _NARROW


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout (see `json_text` for NaN and infinities)."""
    out.file.write(to_json(value) + "\n")


def table(headers: Sequence[str], rows: Sequence[Sequence[str | Text]], *, width: int | None = None) -> RenderableType:
    """A table; where the terminal is too narrow for it (`width`: its columns), a paragraph for each row."""
    narrow = paragraphs(headers, rows, out.width if width is None else width)
    if narrow is not None:
        return narrow
    found = Table()
    for header in headers:
        found.add_column(header, overflow="fold")
    for row in map(_texts, rows):
        found.add_row(*row)
    return found


def paragraphs(headers: Sequence[str], rows: Sequence[Sequence[str | Text]], width: int) -> Group | None:
    """A paragraph for each row if a table of them needs more columns than `width`; None if it fits."""
    texts = list(map(_texts, rows))
    if _least_width(headers, texts) <= width:
        return None
    return Group(*(_paragraph(headers, row) for row in texts))


def _texts(row: Sequence[str | Text]) -> list[Text]:
    return [cell if isinstance(cell, Text) else Text(cell) for cell in row]


def _least_width(headers: Sequence[str], rows: Sequence[Sequence[Text]]) -> int:
    """The columns that a table needs if lines are broken between words only."""
    columns = zip(headers, *([cell.plain for cell in row] for row in rows), strict=True)
    return 1 + sum(3 + max(cell_len(word) for cell in column for word in (cell.split() or [""])) for column in columns)


def _paragraph(headers: Sequence[str], row: Sequence[Text]) -> Text:
    """A row as lines: its first cell, then the others with their headers."""
    lines = [Text(row[0].plain, "bold")]
    lines += [Text.assemble(f"  {header}: ", cell) for header, cell in zip(headers[1:], row[1:], strict=True) if cell]
    return Text("\n").join(lines)


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
