"""The declarations of a backend, with what they loosen and what the run measured: lines for all forms of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..declaration import Declaration
from ..run import Run
from .text import cell, first_line

#: Characters of a line on the terminal.
_LINE = 150
#: Declarations that the terminal lists, and Markdown.
_SHOWN = 12


@dataclass(frozen=True)
class Line:
    """One declaration as it is shown."""

    what: str
    where: str
    loosens: str
    limit: str
    measured: str


def lines(run: Run) -> tuple[Line, ...]:
    """The declarations, those with figures first."""
    ordered = sorted(run.declarations, key=lambda item: item.value is None)
    return tuple(_line(item) for item in ordered)


def _line(item: Declaration) -> Line:
    return Line(item.what, item.where, item.loosens, item.breaks or item.limit, item.measured or "not measured")


def console_lines(run: Run) -> Sequence[tuple[str, str]]:
    """(what, words) of each, for a list on the terminal."""
    return [
        (first_line(line.what, 60), first_line(f"({line.where}): {line.loosens}; measured: {line.measured}", _LINE))
        for line in lines(run)
    ]


def markdown_table(run: Run) -> str:
    """A table, empty without declarations."""
    found = lines(run)
    if not found:
        return ""
    rows = [
        "| " + " | ".join(map(cell, (line.what, line.where, line.loosens, line.measured))) + " |"
        for line in found[:_SHOWN]
    ]
    more = [f"\n… and {len(found) - _SHOWN} more, in the JSON report."] if len(found) > _SHOWN else []
    return "\n".join(["| declared | where | what it loosens | measured |", "|---|---|---|---|", *rows, *more])


def rows(run: Run) -> Iterator[tuple[str, str, str, str, str]]:
    """(what, where, loosens, limit, measured) of each, for the page."""
    for line in lines(run):
        yield line.what, line.where, line.loosens, line.limit, line.measured
