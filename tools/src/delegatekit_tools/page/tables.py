"""The page's sections that need no script: delegated operators, the rest and the reasons, and the weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from delegatekit.partition import PartitionedMethod
from delegatekit_api.devices import Estimate
from delegatekit_toolkit.number_text import human_size, human_time
from delegatekit_toolkit.passes import Change

from ..report.report import DelegateReport, Report
from ..report.rows import ExplainRow
from ..text import summary
from .graph import DELEGATE, Box, Drawing, Item, constants_of, leaves
from .shell import text

#: Rows of a table that the page shows; the rest is summed up.
_MOST: Final = 60
#: Modules named for one reason.
_NAMED: Final = 3


def lost(drawing: Drawing) -> str:
    """The number of a method's operators that nothing runs, in words; empty if there are none."""
    count = sum(not item.row.runnable for item in drawing.operators if item.row is not None)
    return f"{drawing.method}: nothing runs {count} of the operators" if count else ""


def delegates(drawing: Drawing, reports: Sequence[DelegateReport]) -> Iterator[str]:
    """The delegates of a method; without reports, as planned."""
    boxes = list(_delegates(drawing.items))
    if not boxes:
        yield "<p>No delegate.</p>"
        return
    heads = ["delegate", "operators", *(["blob", "estimate"] if reports else [])]
    rows = []
    for index, box in enumerate(boxes):
        cells = [f"{index}: {text(box.label)}", str(len(list(leaves(box.items))))]
        if reports:
            cells += [human_size(reports[index].blob_size), _estimate(reports[index])]
        rows.append(cells)
    yield from table(heads, rows, numbers=(1, 2))


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
    rows = [
        [text(name), str(len(members)), text(kernel), _reasons(dict(reasons)), _places(members)]
        for (name, kernel, reasons), members in found
    ]
    yield from table(["operator", "count", "runs as", "why no backend takes it", "where"], rows, numbers=(1,))


def decomposed(rows: Sequence[ExplainRow]) -> Iterator[str]:
    """Operators that nothing runs whole, and their decompositions."""
    cells = [
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


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> Iterator[str]:
    """A table of cells that are HTML; `numbers` are the columns to align as such."""
    kinds = [' class="number"' if index in numbers else "" for index in range(len(heads))]
    titles = "".join(f'<th scope="col"{kind}>{text(head)}</th>' for kind, head in zip(kinds, heads, strict=True))
    yield f'<div class="wide"><table><thead><tr>{titles}</tr></thead><tbody>'
    for row in rows[:_MOST]:
        cells = (f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if len(rows) > _MOST:
        yield f"<p>and {len(rows) - _MOST} more</p>"


def _bars(head: str, sizes: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A table of sizes with bars, and their sum."""
    if not sizes:
        yield "<p>Nothing.</p>"
        return
    largest, whole = max(size for _, size in sizes) or 1, sum(size for _, size in sizes)
    rows = [
        [name, human_size(size), f'<meter min="0" max="{largest}" value="{size}" aria-hidden="true"></meter>']
        for name, size in sizes
    ]
    yield f"<p>{human_size(whole)} together.</p>"
    yield from table([head, "size", ""], rows, numbers=(1,))


def _delegates(items: Iterable[Item]) -> Iterator[Box]:
    for item in items:
        if isinstance(item, Box):
            if item.kind == DELEGATE:
                yield item
            else:
                yield from _delegates(item.items)


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
            human_time(layer.latency),
            f"{100 * layer.latency / total:.1f} %",
            "" if layer.cycles is None else f"{layer.cycles:,}",
            f"{layer.macs:,}",
            human_size(max(layer.memory.values(), default=0)),
        ]
        for layer in sorted(estimate.layers, key=lambda layer: -layer.latency)
    ]
    heads = ["layer", "operator", "time", "share", "cycles", "MACs", "memory"]
    return f"<details><summary>layers</summary>{''.join(table(heads, rows, range(2, 7)))}</details>"


def _reasons(reasons: Mapping[str, str]) -> str:
    return "".join(f"<p><b>{text(who)}</b>: {text(why)}</p>" for who, why in reasons.items())


def _places(rows: Sequence[ExplainRow]) -> str:
    places = list(dict.fromkeys(", ".join(part for part in (row.module, row.source) if part) for row in rows))
    shown = [text(place) for place in places[:_NAMED] if place]
    return "<br>".join(shown) + (f"<br>and {len(places) - _NAMED} more" if len(places) > _NAMED else "")
