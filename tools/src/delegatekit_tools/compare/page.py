"""A comparison as a page: the graph of the lowered program, colored by each operator's error in parts of its bound."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from delegatekit.partition import PartitionedMethod
from delegatekit_toolkit.source_paths import short_source

from ..page import framed
from ..page.cards import Card, warnings
from ..page.drawing import graph_data
from ..page.graph import Drawing, draw
from ..page.measures import Measure, sizes_of
from ..page.shell import text
from ..page.tables import Cell, Number, table
from .result import Divergence, Measured, Operator, Output
from .text import decibels, words

#: The share of a bound that is shown for what no number excuses.
_WRONG: Final = 1e9


class Found(Protocol):
    """The facts of a comparison that the page shows (`Comparison`)."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def backends(self) -> tuple[str, ...]:
        """Those of each side."""

    @property
    def operators(self) -> tuple[Operator, ...]:
        """All of them, with their judgments."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Those of the whole method."""

    @property
    def first(self) -> Divergence | None:
        """The first operator that diverges."""

    @property
    def lowerings(self) -> int:
        """The number of compilations."""

    @property
    def seconds(self) -> float:
        """The time that they and the rest took."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """Limits of the judgment, in words."""

    @property
    def right(self) -> bool:
        """True if all is within its bounds."""


def page(found: Found, method: PartitionedMethod, title: str) -> str:
    """The page of a comparison; `method` is the first side's."""
    drawing = draw(method)
    compared = [item for item in found.operators if not item.skipped]
    wrong = [item for item in compared if not item.measured.right]
    sections: dict[str, Iterator[str]] = {}
    if found.first is not None:
        sections["First that diverges"] = _first(found.first)
    sections["Operators"] = _operators(compared)
    sections["Outputs"] = _outputs(found)
    if skipped := [item for item in found.operators if item.skipped]:
        rows: list[Sequence[Cell]] = [[text(item.name), text(item.node), text(item.skipped)] for item in skipped]
        sections["Not compared"] = table(["operator", "node", "why"], rows)
    against = " against ".join(found.backends) or "the runtime alone"
    return framed(
        title,
        [f"Method {found.method} on {against}, beside PyTorch in double precision.", *map(_sentence, found.remarks)],
        [*_cards(found, compared, wrong), warnings([f"{it.name} ({it.node}): {words(it.measured)}" for it in wrong])],
        sections,
        graph_data([drawing], [[]], [[_errors(found, drawing), *sizes_of(drawing)]]),
    )


def _errors(found: Found, drawing: Drawing) -> Measure:
    numbers = {item.name: number for number, item in enumerate(drawing.operators)}
    values: dict[int, float] = {}
    notes: dict[int, str] = {}
    for item in found.operators:
        for node in item.nodes or (item.node,):
            if node not in numbers:
                continue
            number = numbers[node]
            notes[number] = f"not compared: {item.skipped}" if item.skipped else words(item.measured)
            if not item.skipped:
                values[number] = _share(item.measured)
    return Measure(
        "error",
        "bound",
        "each operator's own error, as a part of its bound",
        "Closest to their bounds",
        values,
        notes,
        sums=False,
        limit=True,
        measured=True,
    )


def _share(measured: Measured) -> float:
    """The error as a part of the bound; far beyond 1 for what is wrong without a number."""
    return min(measured.share, _WRONG) if measured.right or measured.share > 1 else _WRONG


def _cards(found: Found, compared: Sequence[Operator], wrong: Sequence[Operator]) -> Iterator[Card]:
    lines = [("", f"{len(wrong)} of {len(compared)} operators are beyond their bounds")]
    lines += [("", f"{item.name}: {'right' if item.measured.right else 'wrong'}") for item in found.outputs]
    yield Card("Verdict", "right" if found.right else "wrong", lines, tone="good" if found.right else "bad")
    inside = [item for item in compared if item.measured.right]
    if inside:
        most = max(inside, key=lambda item: item.measured.share)
        yield Card("Closest to its bound", f"{100 * most.measured.share:.0f} %", [("", most.name), ("", most.node)])
    ratios = [item.measured.sqnr for item in found.outputs if item.measured.sqnr is not None]
    if ratios:
        yield Card("Signal to noise", f"{decibels(min(ratios))} dB", [("", "of the output with the least")])
    skipped = len(found.operators) - len(compared)
    yield Card("Operators compared", f"{len(compared):,}", [("", f"{skipped:,} not compared")])
    yield Card("Lowerings", f"{found.lowerings:,}", [("", f"in {found.seconds:.1f} s")])


def _sentence(remark: str) -> str:
    return f"{remark[:1].upper()}{remark[1:]}."


def _first(first: Divergence) -> Iterator[str]:
    item = first.operator
    yield f"<p><b>{text(item.name)}</b> ({text(item.node)}), on {text(item.place)}: {text(words(item.measured))}</p>"
    if first.kind == "alone":
        yield "<p>It is wrong when it is lowered by itself, too.</p>"
    else:
        run = ", ".join(f"{other.name} ({other.node})" for other in first.run)
        yield f"<p>By itself it is right; the smallest run of operators that shows it: {text(run)}</p>"
    places = [part for part in (item.module, short_source(item.source)) if part]
    yield f"<p>{text(', '.join(places))}</p>" if places else ""


def _operators(compared: Sequence[Operator]) -> Iterator[str]:
    heads = ["of bound", "error", "bound", "SQNR dB", "operator", "runs on", "module", "source"]
    ordered = sorted(compared, key=lambda item: (item.measured.right, -item.measured.share))
    yield from table(heads, [_row(item) for item in ordered])


def _row(item: Operator) -> list[Cell]:
    measured = item.measured
    share = _share(measured)
    return [
        Number(share, f"{100 * share:.0f} %" if measured.right else "wrong"),
        "" if measured.error is None else Number(measured.error, f"{measured.error:.2g}"),
        "" if measured.bound is None else Number(measured.bound, f"{measured.bound:.2g}"),
        "" if measured.sqnr is None else Number(measured.sqnr, decibels(measured.sqnr)),
        text(item.name),
        text(item.place),
        text(item.module),
        text(short_source(item.source)),
    ]


def _outputs(found: Found) -> Iterator[str]:
    rows: list[Sequence[Cell]] = [[text(item.name), text(words(item.measured))] for item in found.outputs]
    yield from table(["output", "judgment"], rows)
