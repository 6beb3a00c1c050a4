"""One or several runs as one HTML page that is self-contained: styles, script and plot are inside it."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from delegatekit.files import write_text
from delegatekit_tools.text import content_policy

from ..outcome import CaseResult, Outcome, Verdict
from ..run import BackendFacts, Run
from . import judges, rows, views
from .declarations import rows as declared_rows
from .marks import CORE, Mark, mark, mark_of
from .plot import plot, ratio, swatch
from .text import clean, first_line

#: The page shows this many faults of a kind, and this many characters of a message; the JSON document has all of them.
_FAULTS = 200
_MESSAGE = 4000
#: This many cases are listed as slowest against eager.
_SLOWEST = 10

#: The parts of the bar, from good to bad.
_KINDS = ("good", "partly", "fallback", "none", "warning", "fault")
_TITLES = {
    "contract": "Contract",
    "operators": "Operators",
    "extremes": "Extremes",
    "patterns": "Patterns",
    "quantized": "Quantized",
    "dynamic": "Dynamic shapes",
    "state": "State",
    "graphs": "Random graphs",
    "models": "Models",
    "robustness": "Robustness",
}


@dataclass(frozen=True)
class Card:
    """One fault to show: of the backend, expected, or of core."""

    anchor: str
    label: str
    case: str
    mark: Mark
    verdict: str
    said: str
    facts: tuple[tuple[str, str], ...]
    snippet: str
    kind: str = ""

    @property
    def summary(self) -> str:
        """The message in one line."""
        return first_line(self.said, 300)


@dataclass(frozen=True)
class Sheet:
    """A run with its figures on the page. `label` distinguishes it from the other runs."""

    number: int
    label: str
    run: Run

    @cached_property
    def matrix(self) -> views.Matrix:
        """Operators by dtype."""
        return views.matrix(self.run.results)

    @cached_property
    def by_name(self) -> dict[str, CaseResult]:
        """The cases by name."""
        return {result.case: result for result in self.run.results}

    @cached_property
    def case_counts(self) -> dict[Verdict, int]:
        """Cases by verdict."""
        return views.case_counts(self.run.results)

    @cached_property
    def counts(self) -> dict[Verdict, int]:
        """Examples by verdict."""
        return views.counts(self.run.results)

    @cached_property
    def faults(self) -> list[Card]:
        """The faults that are not expected."""
        found = views.faults(self.run.results)
        return [self._card("fault", number, *each) for number, each in enumerate(found)]

    @cached_property
    def expected(self) -> list[Card]:
        """The faults that the vendor knows."""
        found = [(result, fault) for result in views.expected(self.run.results) for fault in result.faults]
        return [self._card("expected", number, *each) for number, each in enumerate(found)]

    @cached_property
    def core(self) -> list[Card]:
        """The faults that occur without the backend."""
        found = views.core_faults(self.run.results)
        return [self._card("core", number, *each) for number, each in enumerate(found)]

    @cached_property
    def anchors(self) -> dict[str, str]:
        """The anchor of the first fault of each case."""
        cards = [*self.core[:_FAULTS], *self.expected[:_FAULTS], *self.faults[:_FAULTS]]
        return {card.case: card.anchor for card in reversed(cards)} if cards else {}

    @cached_property
    def reasons(self) -> list[views.Reason]:
        """The backend's reasons for refusals, the most frequent first."""
        return views.reasons(self.run.results)

    @cached_property
    def judges(self) -> tuple[judges.Judge, ...]:
        """The judges, with the number of examples that each saw."""
        return judges.judges(self.run)

    @cached_property
    def unreached(self) -> tuple[rows.RowReach, ...]:
        """The rows of the support table that were never compiled."""
        return rows.unreached(self.run) if self.judges else ()

    @property
    def reached(self) -> str:
        """The number of rows of the support table that were compiled, in words."""
        return rows.summary(self.run)

    @cached_property
    def latencies(self) -> list[views.Latency]:
        """Times, the slowest against eager first."""
        return views.latencies(self.run.results)

    @property
    def median_ratio(self) -> str:
        """The median ratio to eager, in words."""
        ratios = sorted(latency.ratio for latency in self.latencies)
        return ratio(ratios[len(ratios) // 2])

    @property
    def bar(self) -> list[tuple[str, int, str]]:
        """(kind, cases, words) of the parts of the bar, from good to bad."""
        kinds: dict[str, list[tuple[Verdict, int]]] = {kind: [] for kind in _KINDS}
        for verdict, count in self.case_counts.items():
            kinds[mark(verdict).kind].append((verdict, count))
        return [
            (kind, sum(count for _, count in parts), ", ".join(f"{count} {verdict.value}" for verdict, count in parts))
            for kind, parts in kinds.items()
            if parts
        ]

    @property
    def figures(self) -> list[tuple[str, str, str]]:
        """(name, number, remark) of the summary."""
        results = self.run.results
        delegated, total = views.nodes(results)
        parts = judges.parts(results)
        found = [
            ("Cases", f"{len(results):,}", ""),
            ("Examples", f"{sum(result.examples for result in results):,}", ""),
            ("Right on the backend", f"{parts.right:,}", f"and {parts.partly:,} partly"),
            ("Nothing delegated", f"{parts.without:,}", "says nothing of the backend"),
            ("Examples fully delegated", views.percent(views.share(results)) or "–", ""),
            ("Operator calls delegated", views.percent(delegated / total if total else None) or "–", ""),
            ("Time", views.duration(self.run.seconds), ""),
        ]
        passes, expected = len(self.run.unexpected_passes), len(views.expected(results))
        optional = (
            ("Expected faults", expected, ""),
            ("Unexpected passes", passes, "to remove from the list"),
            ("Faults of core", len(self.core), "not the backend's"),
        )
        return found + [(name, f"{count:,}", remark) for name, count, remark in optional if count]

    @property
    def facts(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """The environment, in groups."""
        run, backend = self.run, self.run.backend
        groups = [
            (
                "Backend",
                {
                    "distribution": f"{backend.distribution} {backend.version}",
                    "summary": backend.summary,
                    "delegate": backend.delegate_id,
                    "plugin API": backend.api_version,
                    "precision": backend.compute_precision,
                    "precision on the device": backend.device_compute_precision,
                    "dynamic shapes": _dynamic(backend),
                    "installation": _installation(backend),
                    "compiler": backend.compiler,
                    "runtime": "available" if backend.available else f"not available: {backend.reason}",
                    "options": ", ".join(f"{name}={value}" for name, value in run.options.items()),
                },
            ),
            (
                "Run",
                {
                    "profile": run.profile,
                    "seed": str(run.seed),
                    "cases": "all" if run.selection == "*" else run.selection,
                    "shard": f"{run.shard[0]} of {run.shard[1]}" if run.shard else "",
                    "time limit": f"{run.timeout:g} s for each example",
                    "started": run.started.replace("T", " ").replace("Z", " UTC"),
                    "took": views.duration(run.seconds),
                },
            ),
            ("Device", dict(run.device)),
            ("Machine", dict(run.machine)),
            ("Versions", dict(run.versions)),
        ]
        filled = [(title, [(name, value) for name, value in facts.items() if value]) for title, facts in groups]
        return [(title, facts) for title, facts in filled if facts]

    def _card(self, kind: str, number: int, result: CaseResult, fault: Outcome) -> Card:
        core = kind == "core"
        verdict = fault.verdict
        shown = CORE if core else Mark(mark(verdict).symbol, "expected" if kind == "expected" else mark(verdict).kind)
        said = (fault.core or fault.detail) if core else fault.detail
        facts = [("example", first_line(fault.example, 600) + (" (the smallest found)" if fault.shrunk else ""))]
        if fault.error is not None and fault.tolerance is not None:
            facts.append(("error", f"{fault.error:.3g}; allowed {fault.tolerance:.3g}"))
        if kind == "expected":
            facts.append(("expected", result.expected or ""))
        if not core and fault.core:
            facts.append(("without the backend", first_line(fault.core, 600)))
        return Card(
            f"{kind}-{self.number}-{number}",
            self.label,
            result.case,
            shown,
            "fault of core" if core else verdict.value,
            clean(said)[:_MESSAGE],
            tuple((name, value) for name, value in facts if value.strip()),
            fault.snippet,
            {"core": "is-core", "expected": "is-expected"}.get(kind, ""),
        )


@dataclass(frozen=True)
class Cell:
    """A square of the matrix."""

    mark: Mark
    words: str
    title: str
    share: str = ""
    core_too: bool = False


@dataclass(frozen=True)
class Line:
    """The details of an operator's squares: dtypes for which the same holds."""

    label: str
    dtypes: str
    result: CaseResult
    mark: Mark
    reasons: tuple[str, ...]
    anchor: str


@dataclass(frozen=True)
class Row:
    """An operator. `kinds` are the kinds of its marks, which the page filters by."""

    operator: str
    namespace: str
    name: str
    overload: str
    kinds: str
    #: For each run, the squares and the share.
    groups: tuple[tuple[tuple[Cell | None, ...], str], ...]
    lines: tuple[Line, ...]


def html(runs: Sequence[Run]) -> str:
    """The page of one run, or of several side by side. Raises ValueError if there is none."""
    if not runs:
        raise ValueError("a page needs at least one run")
    sheets = [Sheet(number, label, run) for number, (label, run) in enumerate(zip(_labels(runs), runs, strict=True))]
    dtypes = [list(sheet.matrix.dtypes) for sheet in sheets]
    rows = list(_rows(sheets))
    values: dict[str, Any] = {
        "sheets": sheets,
        "single": len(sheets) == 1,
        "rows": rows,
        "dtypes": dtypes,
        "legend": _legend(sheets),
        "rooms": _rooms(sheets),
        "plot": plot([(sheet.label, sheet.latencies) for sheet in sheets]),
        "verdicts": [verdict for verdict in Verdict if any(verdict in sheet.case_counts for sheet in sheets)],
        "other_verdicts": [verdict for verdict in Verdict if all(verdict not in s.case_counts for s in sheets)],
        "slowest": _SLOWEST,
        "limit": _FAULTS,
    }
    css = _style(sheets)
    values |= {"css": Markup(css), "policy": content_policy(style=css, script=asset("page.js"))}
    return environment().get_template("page.html.jinja").render(values)


def write_html(path: Path, runs: Sequence[Run]) -> None:
    """Write the page to a file."""
    write_text(path, html(runs))


def _labels(runs: Sequence[Run]) -> list[str]:
    """Names of the backends; with version and number where that is ambiguous."""
    names = [run.backend.name for run in runs]
    if len(set(names)) < len(names):
        names = [f"{run.backend.name} {run.backend.version}" for run in runs]
    counts, seen = Counter(names), Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(f"{name} ({seen[name]})" if counts[name] > 1 else name)
    return labels


def _rows(sheets: Sequence[Sheet]) -> Iterable[Row]:
    for operator in sorted({operator for sheet in sheets for operator in sheet.matrix.operators}):
        groups = []
        kinds: set[str] = set()
        for sheet in sheets:
            results = [sheet.matrix.cells.get((operator, dtype)) for dtype in sheet.matrix.dtypes]
            cells = tuple(None if result is None else _cell(result) for result in results)
            kinds |= {cell.mark.kind for cell in cells if cell}
            kinds |= {"core" for cell in cells if cell and cell.core_too}
            groups.append((cells, views.percent(views.share(filter(None, results)))))
        namespace, dot, name = operator.partition(".")
        if not name:
            namespace, dot, name = "", "", operator
        plain = name.removesuffix(".default")  # carries no information; narrow screens leave it out
        lines = tuple(line for sheet in sheets for line in _lines(sheet, operator))
        yield Row(operator, namespace + dot, plain, name[len(plain) :], " ".join(sorted(kinds)), tuple(groups), lines)


def _cell(result: CaseResult) -> Cell:
    shown = mark_of(result)
    share = views.share([result])
    partial = share is not None and 0 < share < 1 and result.verdict in (Verdict.DELEGATED, Verdict.PARTLY)
    return Cell(
        shown,
        _words(result),
        f"{result.tags['operator']}, {result.tags['dtype']}\n{examples(result) or _words(result)}",
        views.percent(share) if partial else "",
        bool(result.core_faults and shown is not CORE),
    )


def _words(result: CaseResult) -> str:
    if not result.counts and result.core_faults:
        return "fault of core"
    return f"{result.verdict.value}{' (expected)' if result.verdict.is_fault and not result.is_fault else ''}"


def examples(result: CaseResult) -> str:
    """ "45 examples: 40 correct, delegated; 5 correct, nothing delegated"."""
    ordered = {verdict: result.counts[verdict] for verdict in Verdict if verdict in result.counts}
    if not ordered:
        return ""
    if len(ordered) == 1:
        verdict, count = next(iter(ordered.items()))
        return f"{count} example{'' if count == 1 else 's'}: {verdict.value}"
    counts = "; ".join(f"{count} {verdict.value}" for verdict, count in ordered.items())
    return f"{result.examples} examples: {counts}"


def _lines(sheet: Sheet, operator: str) -> Iterable[Line]:
    found: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in sheet.matrix.row(operator):
        anchor = sheet.anchors.get(result.case, "")
        # Reasons that name the case's dtype are the same reason for another.
        same = tuple(text.replace(f" is {result.tags['dtype']}", " is \0") for text in _reasons(result, operator))
        key = (_words(result), tuple(result.counts.items()), same, anchor, result.detail)
        found.setdefault(key, []).append(result)
    for results in found.values():
        dtypes = ", ".join(result.tags["dtype"] for result in results)
        first = results[0]
        anchor = sheet.anchors.get(first.case, "")
        texts = _reasons(first, operator)
        if len(results) > 1:
            texts = tuple(text.replace(f" is {first.tags['dtype']}", " is of this dtype") for text in texts)
        yield Line(sheet.label, dtypes, first, mark_of(first), texts, anchor)


def _reasons(result: CaseResult, operator: str) -> tuple[str, ...]:
    texts = []
    for line in result.reasons:
        name, text = views.split_reason(line)
        texts.append(text if name in ("", operator) else f"{name}: {text}")
    return tuple(dict.fromkeys(texts))


def _legend(sheets: Sequence[Sheet]) -> list[tuple[Mark, str, str]]:
    """Marks of the matrix with their words and meaning."""
    cells = [result for sheet in sheets for result in sheet.matrix.cells.values()]
    present = {result.verdict for result in cells if result.counts}
    entries = [(mark(verdict), verdict.value, verdict.meaning) for verdict in Verdict if verdict in present]
    if any(result.verdict.is_fault and not result.is_fault for result in cells):
        entries.append((Mark("W", "expected"), "expected fault", "the backend's list of expectations names it"))
    if any(not result.counts and result.core_faults for result in cells):
        meaning = "the runtime's own operators fail on all examples: nothing is known about the backend"
        entries.append((CORE, "fault of core", meaning))
    return entries


@dataclass(frozen=True)
class Room:
    """The cases of one room, except operators that the matrix shows."""

    name: str
    title: str
    #: For each case, its name without the room and its result in each run.
    rows: tuple[tuple[str, tuple[CaseResult | None, ...]], ...]


def _rooms(sheets: Sequence[Sheet]) -> list[Room]:
    found: dict[str, dict[str, None]] = {}
    for sheet in sheets:
        for room, results in views.rooms(sheet.run.results).items():
            names = (result.case for result in results if not {"operator", "dtype"} <= result.tags.keys())
            found.setdefault(room, {}).update(dict.fromkeys(names))
    order = list(views.rooms(result for sheet in sheets for result in sheet.run.results))
    return [
        Room(
            room,
            _TITLES.get(room, room.replace("_", " ").capitalize()),
            tuple(
                (name.removeprefix(f"{room}/"), tuple(sheet.by_name.get(name) for sheet in sheets))
                for name in found[room]
            ),
        )
        for room in order
        if found[room]
    ]


def _delegated(result: CaseResult) -> str:
    delegated, total = views.nodes([result])
    return views.percent(delegated / total) if total else ""


def _installation(backend: BackendFacts) -> str:
    """What is installed, in words."""
    found = backend.installation
    if found.sha256:
        return f"a wheel of {found.files:,} files, SHA-256 {found.sha256}"
    return f"{found.state}: {found.reason}" if found.reason else ""


def _dynamic(backend: BackendFacts) -> str:
    """Support of delegates for sizes that change, in words."""
    if not backend.supports_dynamic_shapes:
        return "no"
    return "yes" if backend.device_dynamic_shapes else "here yes, not on the device"


def _breaks(name: str) -> Markup:
    """A name that a narrow screen may break after its punctuation."""
    return Markup(re.sub(r"(?<=[/._])(?=[^/._])", "<wbr>", str(escape(clean(name)))))


def _note(result: CaseResult) -> str:
    """A remark on a case for a table, in one line."""
    if result.verdict.is_fault and result.faults:
        return first_line(views.by_gravity(result.faults)[0].detail, 220)
    if not result.counts and result.core_faults:
        return first_line(result.core_faults[0].core or result.core_faults[0].detail, 220)
    if result.detail or not result.reasons:
        return first_line(result.detail, 220)
    more = f" (and {len(result.reasons) - 1} more)" if len(result.reasons) > 1 else ""
    return first_line(result.reasons[0], 180) + more


def _style(sheets: Iterable[Sheet]) -> str:
    """The style sheet of a page: the same for all, and the lengths of the parts of its bars."""
    counts = sorted({count for sheet in sheets for _, count, _ in sheet.bar})
    return asset("page.css") + bar_style(counts)


def bar_style(counts: Iterable[int]) -> str:
    """The lengths of the parts of bars."""
    return "".join(f".bar .of-{count} {{ flex: {count}; }}\n" for count in counts)


def asset(name: str) -> str:
    """The text of a file of this folder: a template, a style sheet, a script."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


@functools.lru_cache(maxsize=1)
def environment() -> Environment:
    """The templates' environment: all that is foreign is escaped, and sanitized."""
    environment = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if type(value) is str else value,
    )
    environment.filters.update(breaks=_breaks, note=_note)
    environment.globals.update(
        delegated=_delegated,
        js=Markup(asset("page.js")),
        mark=mark,
        mark_of=mark_of,
        words=_words,
        examples=examples,
        note=_note,
        views=views,
        declared_rows=declared_rows,
        ratio=ratio,
        swatch=swatch,
    )
    return environment
