"""The delegation report: one page of HTML with what runs each operator of a program, and why.

It is self-contained and needs no network. The same program and backends give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import chain

from delegatekit.emit import PlacedValue
from delegatekit.lowering import shares_of
from delegatekit.partition import PartitionedMethod
from delegatekit.pipeline import LoweredProgram
from delegatekit.version import __version__
from delegatekit_toolkit.number_text import human_size

from ..report import DelegateReport, MethodReport, Report, report
from ..report.rows import decomposed_row
from ..text import summary
from . import tables
from .drawing import graph_data
from .graph import Drawing, draw
from .memory import chart, legend
from .shell import embedded, shell, text


@dataclass(frozen=True)
class Compiled:
    """The additions of lowering to a plan."""

    report: Report
    #: Method -> its planned values.
    placed: Mapping[str, Sequence[PlacedValue]] = field(default_factory=dict)


def html(program: LoweredProgram, title: str = "Delegation report") -> str:
    """The report of a lowered program: the graph, what runs each operator and why, estimates, memory, weights.

    One page, which needs no network; the same program gives the same page.
    """
    return page(title, program.partitioned, compiled=Compiled(report(program), program.emitted.placed))


def page(
    title: str,
    methods: Mapping[str, PartitionedMethod],
    refused: Sequence[str] = (),
    compiled: Compiled | None = None,
) -> str:
    """The page of a program as planned, or as `compiled`; `refused` are the refusals of backends."""
    drawings = [draw(method) for method in methods.values()]
    reports = {} if compiled is None else {method.name: method for method in compiled.report.methods}
    notes = [[_note(item) for item in _delegates(reports, drawing)] for drawing in drawings]
    sections = dict(_sections(methods, drawings, reports, compiled))
    links = "".join(f'<li><a href="#{_name(head)}">{head}</a></li>' for head in ("Graph", *sections))
    what = "as compiled" if compiled is not None else "as planned: nothing was compiled"
    body = [
        f"<header><h1>{text(title)}</h1><p>Delegation {what}. DelegateKit {text(__version__)}.</p>",
        *(f"<p>{text(name)}: {text(shares_of({name: method}))}</p>" for name, method in methods.items()),
        *(f'<p class="refused">{text(lost)}</p>' for lost in filter(None, map(tables.lost, drawings))),
        *(f'<p class="refused">REFUSED: {text(reason)}</p>' for reason in refused),
        f"<nav><ul>{links}</ul></nav></header><main>",
        _asset("graph.html"),
        *(f'<section id="{_name(head)}"><h2>{head}</h2>{"".join(lines)}</section>' for head, lines in sections.items()),
        "</main>",
        embedded("data", graph_data(drawings, notes)),
    ]
    return shell(title, _asset("page.css"), body, _asset("page.js"))


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
        yield "Decomposed", tables.decomposed(found)
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
