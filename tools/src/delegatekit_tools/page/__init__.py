"""The delegation report: one page of HTML with what runs each operator of a program, and why.

It is self-contained and needs no network. The same program and backends give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from io import RawIOBase
from itertools import chain
from typing import Any, Final, cast

from delegatekit.emit import PlacedValue
from delegatekit.lowering import Shares, shares_of
from delegatekit.partition import PartitionedMethod
from delegatekit.pipeline import LoweredProgram
from delegatekit.pte import write_to
from delegatekit.version import __version__
from delegatekit_toolkit.number_text import human_size
from delegatekit_toolkit.source_paths import short_source

from ..report import DelegateReport, MethodReport, Report, report
from ..report.rows import decomposed_row
from ..text import summary
from . import cards, tables
from .drawing import graph_data
from .graph import Drawing, draw, weight_kinds
from .measures import Measure, estimated, sizes_of
from .memory import chart, legend
from .shell import embedded, shell, text

#: The parts of the script, in order: the later ones use the names of the earlier.
_SCRIPTS: Final = ("model.js", "canvas.js", "panel.js", "page.js", "tables.js")


@dataclass(frozen=True)
class Compiled:
    """The additions of lowering to a plan."""

    report: Report
    #: Method -> its planned values.
    placed: Mapping[str, Sequence[PlacedValue]] = field(default_factory=dict)
    #: Bytes of the file.
    size: int = 0


def html(program: LoweredProgram, title: str = "Delegation report") -> str:
    """The report of a lowered program: the graph, what runs each operator and why, estimates, memory, weights.

    One page, which needs no network; the same program gives the same page.
    """
    counter = _Counter()
    write_to(program.image, cast(Any, counter))
    compiled = Compiled(report(program), program.emitted.placed, counter.size)
    return page(title, program.partitioned, compiled=compiled, backends=program.backends)


class _Counter(RawIOBase):
    """A file that counts what is written."""

    size = 0

    def write(self, content: Any) -> int:
        size = memoryview(content).nbytes
        self.size += size
        return size


def page(
    title: str,
    methods: Mapping[str, PartitionedMethod],
    refused: Sequence[str] = (),
    compiled: Compiled | None = None,
    backends: Sequence[str] = (),
) -> str:
    """The page of a program as planned, or as `compiled`; `refused` are the refusals of backends."""
    drawings = [draw(method) for method in methods.values()]
    reports = {} if compiled is None else {method.name: method for method in compiled.report.methods}
    notes = [[_note(item) for item in _delegates(reports, drawing)] for drawing in drawings]
    sections = dict(_sections(methods, drawings, reports, compiled))
    what = "as compiled" if compiled is not None else "as planned: nothing was compiled"
    told = [f"Delegation {what}. DelegateKit {__version__}."]
    if len(methods) > 1:
        told += [f"{name}: {shares_of({name: method})}" for name, method in methods.items()]
    found = shares_of(methods, backends)
    lost = [*filter(None, map(tables.lost, drawings)), *(f"REFUSED: {reason}" for reason in refused)]
    lost += ["nothing is delegated"] if found.is_idle else []
    return framed(
        title,
        told,
        [*_cards(found, methods, drawings, compiled), cards.warnings(lost, list(_remarks(found, compiled)))],
        sections,
        graph_data(drawings, notes, [_measures(reports, drawing) for drawing in drawings]),
    )


def framed(
    title: str,
    told: Sequence[str],
    found: Iterable[cards.Card],
    sections: Mapping[str, Iterator[str]],
    data: Mapping[str, Any],
) -> str:
    """A page with a graph: what it is, cards, the graph, and sections by their headings.

    `told` are sentences; `data` is that of the graph.
    """
    links = "".join(f'<li><a href="#{_name(head)}">{text(head)}</a></li>' for head in ("Graph", *sections))
    body = [
        f"<header><h1>{text(title)}</h1>{''.join(f'<p>{text(line)}</p>' for line in told)}",
        f"<nav><ul>{links}</ul></nav></header><main>",
        *cards.cards(found),
        _asset("graph.html"),
        *(
            f'<section id="{_name(head)}"><h2>{text(head)}</h2>{"".join(lines)}</section>'
            for head, lines in sections.items()
        ),
        "</main>",
        embedded("data", data),
    ]
    script = "".join(_asset(name) for name in _SCRIPTS)
    return shell(title, _asset("page.css"), body, f'"use strict";\n(() => {{\n{script}}})();\n')


def _cards(
    found: Shares,
    methods: Mapping[str, PartitionedMethod],
    drawings: Sequence[Drawing],
    compiled: Compiled | None,
) -> list[cards.Card]:
    made = [*cards.shares(found, cards.takers_of(drawings)), cards.crossings(drawings)]
    if compiled is not None:
        made.append(cards.file_size(compiled.report, compiled.size))
    made += cards.weights(weight_kinds(methods.values()))
    if compiled is not None:
        made.append(cards.memory(compiled.report.methods))
        made += cards.estimates(compiled.report.methods)
    return made


def _remarks(found: Shares, compiled: Compiled | None) -> Iterator[str]:
    for item in found.largest:
        size = f", {item.macs:,} MACs" if item.macs else ""
        yield f"left to the runtime: {item.operator} x{item.count}{size}"
    if compiled is None:
        return
    for method in compiled.report.methods:
        here = [str(index) for index, item in enumerate(method.delegates) if item.only_here]
        if here:
            yield f"{method.name}: sizes change in delegates {', '.join(here)}: they run here, but not on the device"
    yield from (f"backend {name} took nothing: {reason}" for name, reason in compiled.report.idle.items())


def _sections(
    methods: Mapping[str, PartitionedMethod],
    drawings: Sequence[Drawing],
    reports: Mapping[str, MethodReport],
    compiled: Compiled | None,
) -> Iterator[tuple[str, Iterator[str]]]:
    """Headings, and the contents of their sections."""
    yield "Delegates", _each(drawings, lambda item: tables.delegates(item, _delegates(reports, item)))
    yield "Left to the runtime", _each(drawings, tables.left)
    if found := [decomposed_row(name, item) for name, method in methods.items() for item in method.decompositions]:
        rows = [replace(row, source=short_source(row.source)) for row in found]
        yield "Decomposed", tables.decomposed(rows)
    if made := [change for method in methods.values() for change in method.changes]:
        yield "Changed by passes", tables.changes(made)
    if compiled is not None:
        placed, report = compiled.placed, compiled.report
        charts = _each(drawings, lambda item: _charts(reports[item.method], placed))
        yield "Memory over time", chain(legend(), charts)
        yield "The file", tables.holdings(report)
    yield "Weights", tables.weights(methods.values())


def _each(drawings: Sequence[Drawing], tell: Callable[[Drawing], Iterator[str]]) -> Iterator[str]:
    """A part for each method, named if there are several."""
    for drawing in drawings:
        if len(drawings) > 1:
            yield f"<h3>{text(drawing.method)}</h3>"
        yield from tell(drawing)


def _charts(report: MethodReport, placed: Mapping[str, Sequence[PlacedValue]]) -> Iterator[str]:
    for arena in report.arenas:
        yield from chart(arena, placed.get(report.name, ()))


def _delegates(reports: Mapping[str, MethodReport], drawing: Drawing) -> Sequence[DelegateReport]:
    return reports[drawing.method].delegates if drawing.method in reports else ()


def _measures(reports: Mapping[str, MethodReport], drawing: Drawing) -> list[Measure]:
    estimates = [item.estimate for item in _delegates(reports, drawing)]
    return [*estimated(drawing, estimates), *sizes_of(drawing)]


def _note(report: DelegateReport) -> str:
    """The note beside a delegate's box."""
    said = f"blob {human_size(report.blob_size)}"
    estimated = "" if report.estimate is None else summary(report.estimate)
    return f"{said}; estimated {estimated}" if estimated else said


def _name(head: str) -> str:
    """The anchor of a section."""
    return head.lower().replace(" ", "-")


@cache
def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text("utf-8")
