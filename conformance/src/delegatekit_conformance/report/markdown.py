"""A run as Markdown: a summary for a comment on a change, or for a README."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from delegatekit.files import write_text

from ..outcome import CaseResult, Outcome
from ..run import Run
from . import judges, rows, views
from .declarations import markdown_table
from .text import block, cell, clean, code, first_line

#: The number of faults that are written out with their snippets, of lines of the other lists, and of characters of a
#: snippet: a comment on GitHub holds 65 536 characters.
_FAULTS = 10
_LINES = 15
_SNIPPET = 3000


def markdown(run: Run) -> str:
    """The summary: the result in words, a table of rooms, faults with snippets, reasons."""
    parts = [f"## Conformance of {cell(run.backend.name)}", headline(run)]
    declared = markdown_table(run)
    parts += [_folded(f"What the backend declares: {len(run.declarations)}", declared)] if declared else []
    parts += [_table(run), *_seen(run), *_faults(run)]
    parts += _lists(run)
    found = views.reasons(run.results)
    if found:
        lines = [f"| {cell(reason.text)} | {reason.cases} | {_operators(reason)} |" for reason in found[:_LINES]]
        table = "\n".join(["| reason | cases | operators |", "|---|---:|---|", *lines])
        parts.append(_folded(f"Why the backend refused: {_of(len(found), 'reason')}", table))
    parts.append(_environment(run))
    return "\n\n".join(parts) + "\n"


def write_markdown(path: Path, run: Run) -> None:
    """Write the summary to a file."""
    write_text(path, markdown(run))


def headline(run: Run) -> str:
    """The result in one or two sentences."""
    faults = len(run.faults)
    result = f"**{views.cases(faults)} with faults**" if faults else "**No faults**"
    examples = sum(result.examples for result in run.results)
    share = views.percent(views.share(run.results))
    taken = f" {share} of the examples were fully delegated." if share else ""
    parts = judges.parts(run.results)
    told = f" {parts.words[0].upper()}{parts.words[1:]}." if judges.judges(run) else ""
    return f"{result} in {views.cases(len(run.results))} with {examples:,} examples.{taken}{told}"


def _seen(run: Run) -> list[str]:
    """Coverage of each judge, and rows of the support table that no example reached."""
    found = judges.judges(run)
    if not found:
        return []
    lines = ["| judge | examples seen | of | why not the others |", "|---|---:|---:|---|"]
    for judge in found:
        why = "; ".join(f"{count}: {reason}" for reason, count in judge.unseen)
        lines.append(f"| {cell(judge.name)} | {judge.seen} | {judge.examples} | {cell(why)} |")
    parts = ["\n".join(lines), *(f"> Warning: {cell(warning)}" for warning in judges.warnings(run))]
    parts.append(f"{cell(rows.summary(run))}.")
    unreached = [f"{code(name)}: {cell(why)}" for name, why in rows.lines(run)]
    if unreached:
        title = f"Rows of the support table that were never compiled: {len(unreached)}"
        parts.append(_folded(title, _bullets(unreached)))
    return parts


def _table(run: Run) -> str:
    judged = bool(views.in_stock(run.results))
    stock = " in the stock runtime, too |" if judged else ""
    lines = [
        f"| room | cases | examples | fully delegated |{stock} verdicts | faults |",
        f"|---|---:|---:|---:|{'---:|' if judged else ''}---|---:|",
    ]
    for name, results in views.rooms(run.results).items():
        verdicts = ", ".join(f"{count} {verdict.value}" for verdict, count in views.case_counts(results).items())
        faults = sum(result.is_fault for result in results)
        examples = sum(result.examples for result in results)
        share = views.percent(views.share(results))
        stock = f" {views.in_stock(results)} |" if judged else ""
        lines.append(f"| {cell(name)} | {len(results)} | {examples} | {share} |{stock} {verdicts} | {faults or '–'} |")
    return "\n".join(lines)


def _faults(run: Run) -> list[str]:
    found = views.faults(run.results)
    if not found:
        return []
    parts = ["### Faults"]
    parts += [_fault(result, fault) for result, fault in found[:_FAULTS]]
    if len(found) > _FAULTS:
        parts.append(f"… and {len(found) - _FAULTS} more.")
    return parts


def _fault(result: CaseResult, fault: Outcome) -> str:
    lines = [f"{code(result.case)}: **{fault.verdict.value}**. {cell(first_line(fault.detail, 400))}"]
    if fault.example:
        lines.append(f"Example: {code(first_line(fault.example, 400))}")
    if fault.snippet:
        whole = len(fault.snippet) <= _SNIPPET
        snippet = fault.snippet if whole else fault.snippet[:_SNIPPET] + "\n# ... the report has the whole script"
        lines.append(_folded("Python that reproduces it", block(snippet, "python")))
    return "\n\n".join(lines)


def _lists(run: Run) -> list[str]:
    expected = [f"{code(r.case)}: {r.verdict.value}. {cell(r.expected or '')}" for r in views.expected(run.results)]
    passes = [f"{code(result.case)}: {cell(result.expected or '')}" for result in run.unexpected_passes]
    core = [
        f"{code(result.case)}: {cell(first_line(fault.core or fault.detail, 300))}"
        for result, fault in views.core_faults(run.results)
    ]
    unused = [code(pattern) for pattern in run.unused_expectations]
    titles = {
        "Expected faults": expected,
        "Unexpected passes (remove them from the expectations)": passes,
        "Expectations that match no case": unused,
        "Faults of core, without the backend": core,
    }
    return [_folded(f"{title}: {len(lines)}", _bullets(lines)) for title, lines in titles.items() if lines]


def _bullets(lines: Sequence[str]) -> str:
    more = [f"… and {len(lines) - _LINES} more"] if len(lines) > _LINES else []
    return "\n".join(f"- {line}" for line in [*lines[:_LINES], *more])


def _operators(reason: views.Reason) -> str:
    names = [code(name) for name in reason.operators[:4]]
    return ", ".join(names) + (f" and {len(reason.operators) - 4} more" if len(reason.operators) > 4 else "")


def _environment(run: Run) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    facts: Iterable[str] = filter(
        None,
        (
            f"Profile {run.profile}, seed {run.seed}",
            run.shard and f"shard {run.shard[0]} of {run.shard[1]}",
            views.duration(run.seconds),
            run.started,
            versions,
            "; ".join(run.machine.values()),
            "; ".join(run.device.values()),
        ),
    )
    return f"<sub>{cell(clean('. '.join(facts)))}.</sub>"


def _of(count: int, noun: str) -> str:
    shown = f", {_LINES} shown" if count > _LINES else ""
    return f"{count} {noun}{'' if count == 1 else 's'}{shown}"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
