"""The output of commands: results on stdout, everything else on stderr; tables and JSON.

Nothing else of the command line prints: here, texts of others become such as may be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from delegatekit_api import DelegateKitError, hookimpl
from delegatekit_api.observers import StageEvent
from delegatekit_toolkit.json_text import to_json
from delegatekit_toolkit.waiting import Waiting

from ..errors.misuse import Misuse
from ..text import indented, one_line, one_lined
from ..text.terminal import Terminal

_View = TypeVar("_View")
_More = ParamSpec("_More")

#: Fields of views that are meant to have several lines: programs to copy.
_SEVERAL_LINES: Final = frozenset({"snippet"})
#: Terminals with fewer columns are narrow.
_NARROW: Final = 60
#: Seconds from which on, and after which again, progress is told: a line that changes, and lines.
_CHANGING: Final[dict[str, Any]] = {"after": 2.0, "every": 0.5, "pause": 0.1}
_LINES: Final[dict[str, Any]] = {"after": 10.0, "every": 60.0, "pause": 60.0, "brief": 2.0}

out = Terminal()
err = Terminal(stderr=True)


class UsageError(DelegateKitError, Misuse):
    """The command line is wrong; the command ends with exit code 2."""


def usage(message: str, hint: str | None = None) -> NoReturn:
    """Say what is wrong with the command line, and end with exit code 2."""
    raise UsageError(message, hint=hint)


def say(text: object, style: str = "") -> None:
    """Print a line on stdout as it is: it is not wrapped, and ends of lines in it are shown."""
    out.print(one_line(str(text)), style=style or None, highlight=False, soft_wrap=True)


def show(
    view: _View, text: Callable[Concatenate[_View, _More], str], *args: _More.args, **kwargs: _More.kwargs
) -> None:
    """Print on stdout the lines of `text(view, ...)`, in which each text of the view stays in its line."""
    out.print(text(one_lined(view, _SEVERAL_LINES), *args, **kwargs), highlight=False, soft_wrap=True)


def remark(text: str, style: str = "") -> None:
    """Print a line on stderr, or several of which all but the first are indented."""
    err.print(indented(text), style=style or None, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    head("warning:", "bold yellow", text)


def head(word: str, style: str, text: str) -> None:
    """Print a word in color on stderr, followed by a text as `remark` does."""
    err.print(Text.assemble((word, style), " ", indented(text)), highlight=False, soft_wrap=True)


def is_narrow() -> bool:
    """True if the terminal is too narrow for tables with many columns."""
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
        found.add_column(Text(one_line(header)), overflow="fold")
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
    return [cell if isinstance(cell, Text) else Text(one_line(cell)) for cell in row]


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
def progress(stage: str = "starting") -> Iterator[Waiting]:
    """Tell on stderr what takes long: a line that changes on a terminal, elsewhere one for each stage.

    Stages of lowering are told by themselves; others begin with `stage`, or as the function that this gives is told.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from ..plugins import add_observer

    bar = Progress(SpinnerColumn(), TextColumn("{task.description}", markup=False), console=err, transient=True)
    task = bar.add_task("", total=None)

    def change(text: str) -> None:
        bar.update(task, description=one_line(text))
        bar.start()

    class Observer:
        @hookimpl
        def on_stage(self, event: StageEvent) -> None:
            if event.kind == "start":
                waiting.begin(f"{event.stage} {event.method}")
            elif event.kind == "progress":
                waiting.moved(event.done, event.total)

    waiting = Waiting(change, **_CHANGING) if err.is_terminal else Waiting(remark, **_LINES)
    remove = add_observer(Observer())
    try:
        with waiting:
            waiting.begin(stage)
            yield waiting
    finally:
        bar.live.stop()
        remove()
