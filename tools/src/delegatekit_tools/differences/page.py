"""The differences of two files as a page: cards, tables, and the graphs of both with what moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..page import framed
from ..page.cards import Card
from ..page.contents import Contents
from ..page.drawing import graph_data
from ..page.measures import Measure
from ..page.shell import text
from ..page.tables import Cell, Number, table
from .figures import Figure, Moved

#: The figures with cards of their own.
_CARDS = ("file", "planned memory", "crossings", "calls of the runtime's kernels", "instructions", "a call")


class Found(Protocol):
    """The facts of differences that the page shows (`Differences`)."""

    @property
    def before(self) -> str:
        """The name of the first file."""

    @property
    def after(self) -> str:
        """That of the second."""

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Those of the files and of their methods."""

    @property
    def moved(self) -> tuple[Moved, ...]:
        """The operators that moved."""

    @property
    def kernels(self) -> tuple[Figure, ...]:
        """The calls of the runtime's kernels whose numbers differ."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Limits of what could be told."""

    @property
    def graphs(self) -> Mapping[str, tuple[Contents, Mapping[int, str]]]:
        """The graphs by their names, and the operators in each that moved."""


def page(found: Found, title: str) -> str:
    """The page."""
    drawings, notes, measures = [], [], []
    for name, (made, others) in found.graphs.items():
        drawings.append(made.drawing)
        notes.append(made.notes)
        word = "after" if name.startswith("before") else "before"
        work = {number: float(number in others) for number, item in enumerate(made.drawing.operators) if item.row}
        where = {number: f"{word}: {place}" for number, place in others.items()}
        note = "operators that run elsewhere in the other file"
        measure = Measure("moved", "moved", note, "Moved", work, where, measured=True)
        measures.append([measure] if others else [])
    data = graph_data(drawings, notes, measures, list(found.graphs))
    sections: dict[str, Iterator[str]] = {}
    if found.moved:
        rows: list[Sequence[Cell]] = [
            [text(it.operator), Number(it.count), text(it.before), text(it.after), text(it.where)] for it in found.moved
        ]
        sections["Moved"] = table(["operator", "count", "before", "after", "where"], rows)
    sections["Figures"] = _figures(found.figures)
    if found.kernels:
        sections["Kernels of the runtime"] = _figures(found.kernels)
    told = [
        f"{found.before} beside {found.after}.",
        *(f"{remark[:1].upper()}{remark[1:]}." for remark in found.remarks),
    ]
    return framed(title, told, _cards(found), sections, data)


def _cards(found: Found) -> Iterator[Card]:
    ways: Counter[tuple[str, str]] = Counter()
    for moved in found.moved:
        ways[moved.before, moved.after] += moved.count
    if ways:
        lines = [("", f"{count:,}: {before} → {after}") for (before, after), count in ways.most_common()]
        yield Card("Moved", f"{ways.total():,}", lines)
    several = len({item.method for item in found.figures if item.method}) > 1
    for item in found.figures:
        if item.name in _CARDS:
            yield _card(item, several=several)


def _card(item: Figure, *, several: bool) -> Card:
    worse = item.changed and (item.after or 0) > (item.before or 0)
    better = item.changed and (item.after or 0) < (item.before or 0)
    name = f"{item.name}, {item.method}" if item.method and several else item.name
    lines = [("", f"{item.shown(item.before) or 'nothing'} → {item.shown(item.after) or 'nothing'}")]
    return Card(name[:1].upper() + name[1:], item.change, lines, tone="bad" if worse else "good" if better else "")


def _figures(figures: Sequence[Figure]) -> Iterator[str]:
    rows: list[Sequence[Cell]] = []
    for item in figures:
        share = (item.after or 0) / item.before - 1 if item.before else 0.0
        rows.append(
            [
                text(f"{item.method}: {item.name}" if item.method else item.name),
                Number(item.before or 0, item.shown(item.before) or "nothing"),
                Number(item.after or 0, item.shown(item.after) or "nothing"),
                Number(share, item.change),
            ]
        )
    yield from table(["figure", "before", "after", "change"], rows)
