"""A run on the terminal: a table of rooms, the faults with their snippets, and other points for the vendor."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from delegatekit.cli.console import paragraphs

from ..outcome import CaseResult, Outcome, Verdict
from ..run import Run
from . import judges, rows, views
from .declarations import console_lines
from .marks import STYLES, mark
from .text import clean, first_line

#: This many snippets, further faults by name, and lines of each other list are printed.
_SNIPPETS = 5
_LINES = 10


def print_console(console: Console, run: Run, *, snippets: int = _SNIPPETS) -> None:
    """Print the run; the first `snippets` faults with the script that reproduces them."""
    _print_list(console, "declared, and what it loosens", console_lines(run))
    console.print(_table(run, console.width))
    _print_seen(console, run)
    _print_faults(console, run, snippets)
    expected = [(r.case, f"{r.verdict.value}: {r.expected}") for r in views.expected(run.results)]
    _print_list(console, "expected faults", expected)
    passes = [(result.case, f"expected: {result.expected}") for result in run.unexpected_passes]
    _print_list(console, "unexpected passes: remove them from the expectations", passes)
    _print_list(console, "expectations that match no case", [(name, "") for name in run.unused_expectations])
    core = [(result.case, fault.core or fault.detail) for result, fault in views.core_faults(run.results)]
    _print_list(console, "faults of core: they occur without the backend, too", core)
    reasons = [(f"{reason.cases}×", reason.text) for reason in views.reasons(run.results)]
    _print_list(console, "reasons of refusals, by cases", reasons)
    _print_list(console, "rows of the support table that were never compiled", rows.lines(run))
    console.print(_last_line(run), highlight=False)


def _print_seen(console: Console, run: Run) -> None:
    """Meaning of "correct", coverage of each judge, and rows of the table that no example reached."""
    found = judges.judges(run)
    if not found:
        return
    parts = judges.parts(run.results)
    console.print(Text(clean(parts.words)), highlight=False)
    for judge in found:
        console.print(Text(clean(judge.words)), highlight=False)
    for warning in judges.warnings(run):
        console.print(Text.assemble(("warning: ", "yellow"), clean(warning)))
    console.print(Text(clean(rows.summary(run))), highlight=False)


def _table(run: Run, width: int) -> RenderableType:
    title = f"conformance of {run.backend.name} ({run.backend.distribution} {run.backend.version})"
    found = views.rooms(run.results)
    # A column for each verdict would not fit a terminal: the good ones have columns, the others are words.
    judged = views.in_stock(run.results)
    headers = ("room", "cases", "examples", "taken", *(["stock"] if judged else []), "verdicts of cases")
    lines = [_row(name, results, judged) for name, results in found.items()]
    if len(found) > 1:
        lines.append(_row("all", run.results, judged))
    narrow = paragraphs(headers, lines, width)
    if narrow is not None:
        return Group(Text(clean(title), "bold"), narrow)
    table = Table(title=Text(clean(title)))
    for header in headers:
        table.add_column(header, justify="right" if header in ("cases", "examples", "taken", "stock") else "left")
    for index, row in enumerate(lines):
        if len(found) > 1 and index == len(found):
            table.add_section()
        table.add_row(*row)
    return table


def _row(name: str, results: Sequence[CaseResult], judged: int) -> tuple[str | Text, ...]:
    examples = sum(result.examples for result in results)
    taken = views.percent(views.share(results))
    stock = [f"{views.in_stock(results):,}"] if judged else []
    return Text(name), f"{len(results):,}", f"{examples:,}", taken, *stock, _verdicts(results)


def _verdicts(results: Sequence[CaseResult]) -> Text:
    counts = views.case_counts(results)
    excused = sum(result.verdict.is_fault and not result.is_fault for result in results)
    parts = [Text(f"{count} {verdict.value}", _style(verdict)) for verdict, count in counts.items()]
    if excused:
        parts.append(Text(f"({excused} expected)", "dim"))
    return Text(", ").join(parts)


def _style(verdict: Verdict) -> str:
    return STYLES[mark(verdict).kind]


def _print_faults(console: Console, run: Run, snippets: int) -> None:
    found = views.faults(run.results)
    for number, (result, fault) in enumerate(found):
        if number == snippets + _LINES:
            console.print(f"… and {len(found) - number} more faults: see the report")
            break
        console.print()
        console.print(_heading(result, fault))
        if fault.example:
            console.print(Text(f"  {first_line(fault.example, 400)}", "dim"))
        if number < snippets and fault.snippet:
            # At the margin and not wrapped, so that it can be copied.
            script = Syntax("", "python", background_color="default").highlight(clean(fault.snippet))
            console.print(script, soft_wrap=True)
    if found:
        console.print()


def _heading(result: CaseResult, fault: Outcome) -> Text:
    said = "\n".join(clean(fault.detail).splitlines()[:4])
    return Text.assemble(
        (f"{fault.verdict.value} ", _style(fault.verdict)), (clean(result.case), "bold"), f"  {said[:800]}"
    )


def _print_list(console: Console, title: str, lines: Sequence[tuple[str, str]]) -> None:
    if not lines:
        return
    console.print(Text(f"{title} ({len(lines)})", "bold"))
    for name, said in lines[:_LINES]:
        console.print(Text(f"  {clean(name)}  {first_line(said, 160)}".rstrip()))
    if len(lines) > _LINES:
        console.print(Text(f"  … and {len(lines) - _LINES} more", "dim"))


def _last_line(run: Run) -> Text:
    delegated, total = views.nodes(run.results)
    faults = len(run.faults)
    verdict = Text(f"{views.cases(faults)} with faults", "bold red") if faults else Text("no faults", "bold green")
    shard = f", shard {run.shard[0]} of {run.shard[1]}" if run.shard else ""
    return Text.assemble(
        verdict,
        f" in {views.cases(len(run.results))}, {views.duration(run.seconds)}; {delegated:,} of {total:,} operator "
        f"calls delegated; profile {run.profile}, seed {run.seed}{shard}",
    )
