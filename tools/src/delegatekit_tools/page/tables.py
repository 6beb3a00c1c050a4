"""The page's sections that need no script: delegated operators, the rest and the reasons, and the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from delegatekit.partition import PartitionedMethod
from delegatekit_api.devices import Estimate
from delegatekit_toolkit.number_text import human_size, human_time
from delegatekit_toolkit.passes import Change

from ..report.report import DelegateReport, Report
from ..report.rows import ExplainRow
from ..text import summary
from .graph import Drawing, Operator, constants_of, delegates_of, leaves
from .shell import text

#: A table with more rows than this can be filtered; one with more than a hundred folds by hundreds.
_SHORT: Final = 12
_FOLD: Final = 100
#: Modules named for one reason.
_NAMED: Final = 3


def lost(drawing: Drawing) -> str:
    """The number of a method's operators that nothing runs, in words; empty if there are none."""
    count = sum(not item.row.runnable for item in drawing.operators if item.row is not None)
    return f"{drawing.method}: nothing runs {count} of the operators" if count else ""


def delegates(drawing: Drawing, reports: Sequence[DelegateReport]) -> Iterator[str]:
    """The delegates of a method; without reports, as planned."""
    boxes = list(delegates_of(drawing.items))
    if not boxes:
        yield "<p>No delegate.</p>"
        return
    heads = ["delegate", "backend", "operators", "MACs", *(["blob", "estimate"] if reports else []), "where"]
    rows: list[list[Cell]] = []
    for index, box in enumerate(boxes):
        inside = [drawing.operators[number] for number in leaves(box.items)]
        cells: list[Cell] = [
            Number(index),
            text(box.label),
            Number(len(inside)),
            Number(sum(item.macs for item in inside)),
        ]
        if reports:
            cells += [Number(reports[index].blob_size, human_size(reports[index].blob_size)), _estimate(reports[index])]
        rows.append([*cells, text(".".join(box.path) or _lines(inside))])
    yield from table(heads, rows)


def _lines(inside: Sequence[Operator]) -> str:
    """The source lines of the first and the last operator, without code."""
    found = [item.row.source.partition(": `")[0] for item in inside if item.row is not None and item.row.source]
    return " to ".join(dict.fromkeys((found[0], found[-1]))) if found else ""


def left(drawing: Drawing) -> Iterator[str]:
    """The operators that no backend takes, a row for all that have the same reasons."""
    groups: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[ExplainRow]] = {}
    for item in drawing.operators:
        if item.row is not None and item.row.backend is None:
            key = item.row.operator, item.row.kernel or "NOTHING RUNS IT", tuple(item.row.reasons.items())
            groups.setdefault(key, []).append(item.row)
    if not groups:
        yield "<p>Nothing is left to the runtime.</p>"
        return
    found = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows: list[list[Cell]] = [
        [text(name), Number(len(members)), text(kernel), _reasons(dict(reasons)), _places(members)]
        for (name, kernel, reasons), members in found
    ]
    yield from table(["operator", "count", "runs as", "why no backend takes it", "where"], rows)


def decomposed(rows: Sequence[ExplainRow]) -> Iterator[str]:
    """Operators that nothing runs whole, and their decompositions."""
    cells: list[list[Cell]] = [
        [text(row.operator), text(", ".join(row.became) or "existing operators"), _reasons(row.reasons)] for row in rows
    ]
    yield from table(["operator", "became", "why nothing runs it whole"], cells)


def changes(made: Sequence[Change]) -> Iterator[str]:
    """The changes made by passes."""
    yield f"<ul>{''.join(f'<li>{text(change)}</li>' for change in made)}</ul>"


def holdings(report: Report) -> Iterator[str]:
    """The contents of the file."""
    sizes = {"constants of the runtime's operators": report.constant_size}
    for method in report.methods:
        for index, item in enumerate(method.delegates):
            sizes[f"{method.name}: delegate {index} ({item.backend})"] = item.blob_size
    sizes["named data of backends"] = report.named_data_size
    for name, size in report.data_files.items():
        sizes[f"data file {name}.ptd" if name else "data file of the same name"] = size
    yield from _bars("part", [(text(name), size) for name, size in sizes.items() if size])


def weights(methods: Iterable[PartitionedMethod]) -> Iterator[str]:
    """The weights, the largest first."""
    found: dict[str, tuple[str, int]] = {}
    for method in methods:
        found.update(constants_of(method))
    ordered = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
    named = [(f"{text(name)} <small>{text(kind)}</small>", size) for name, (kind, size) in ordered]
    yield from _bars("weight", named)


@dataclass(frozen=True)
class Number:
    """A cell that is a number: by its value rows are put in order."""

    value: float
    words: str = ""


#: A cell: HTML, or a number.
Cell: TypeAlias = str | Number


def table(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """A table of cells, those that are texts HTML. A long one has a filter, and folds by hundreds."""
    if len(rows) <= _SHORT:
        yield from _part(heads, rows)
        return
    yield '<div class="long"><p class="filter" hidden><label>Filter <input type="search" autocomplete="off"></label> '
    yield "<output></output></p>"
    if len(rows) <= _FOLD:
        yield from _part(heads, rows)
    else:
        for start in range(0, len(rows), _FOLD):
            part = rows[start : start + _FOLD]
            yield f"<details{' open' * (start == 0)}>"
            yield f"<summary>{start + 1} to {start + len(part)} of {len(rows)}</summary>"
            yield from _part(heads, part)
            yield "</details>"
    yield "</div>"


def _part(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    kinds = [' class="number"' if rows and isinstance(rows[0][index], Number) else "" for index in range(len(heads))]
    titles = "".join(f'<th scope="col"{kind}>{text(head)}</th>' for kind, head in zip(kinds, heads, strict=True))
    yield f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>'
    for row in rows:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</tbody></table></div>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return f"<td>{cell}</td>"
    return f'<td class="number" data-value="{cell.value:g}">{text(cell.words or f"{cell.value:,}")}</td>'


def _bars(head: str, sizes: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A table of sizes with bars, and their sum."""
    if not sizes:
        yield "<p>Nothing.</p>"
        return
    largest, whole = max(size for _, size in sizes) or 1, sum(size for _, size in sizes)
    rows: list[list[Cell]] = [
        [
            name,
            Number(size, human_size(size)),
            f'<meter min="0" max="{largest}" value="{size}" aria-hidden="true"></meter>',
        ]
        for name, size in sizes
    ]
    yield f"<p>{human_size(whole)} together.</p>"
    yield from table([head, "size", "share"], rows)


def _estimate(report: DelegateReport) -> str:
    said = "" if report.estimate is None else text(summary(report.estimate)) + _layers(report.estimate)
    return said + ("<br>its sizes change: it runs here, but not on the device" if report.only_here else "")


def _layers(estimate: Estimate) -> str:
    if not estimate.layers:
        return ""
    total = sum(layer.latency for layer in estimate.layers) or 1.0
    rows = [
        [
            text(layer.name),
            text(layer.operator),
            Number(layer.latency, human_time(layer.latency)),
            f"{100 * layer.latency / total:.1f} %",
            "" if layer.cycles is None else Number(layer.cycles),
            Number(layer.macs),
            Number(largest := max(layer.memory.values(), default=0), human_size(largest)),
        ]
        for layer in sorted(estimate.layers, key=lambda layer: -layer.latency)
    ]
    heads = ["layer", "operator", "time", "share", "cycles", "MACs", "memory"]
    return f"<details><summary>layers</summary>{''.join(_part(heads, rows))}</details>"


def _reasons(reasons: Mapping[str, str]) -> str:
    return "".join(f"<p><b>{text(who)}</b>: {text(why)}</p>" for who, why in reasons.items())


def _places(rows: Sequence[ExplainRow]) -> str:
    places = list(dict.fromkeys(", ".join(part for part in (row.module, row.source) if part) for row in rows))
    shown = [text(place) for place in places[:_NAMED] if place]
    return "<br>".join(shown) + (f"<br>and {len(places) - _NAMED} more" if len(places) > _NAMED else "")
