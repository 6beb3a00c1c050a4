"""The table of operator support that backends' documentation embeds, as CSV."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from delegatekit.files import write_text

from ..outcome import CaseResult, Verdict
from ..run import Run
from . import judges, views
from .text import clean

_WORDS = {
    Verdict.UNAVAILABLE: "compiled only",
    Verdict.FALLBACK: "fallback",
    Verdict.REFUSED: "refused",
    Verdict.NOT_EXPORTABLE: "not tested",
    Verdict.NOT_APPLICABLE: "not tested",
}


def support_csv(run: Run) -> str:
    """A row for each operator.

    Columns: `operator`; a column for each dtype ("delegated", "delegated 64 %" of the examples, "fallback", "refused",
    "compiled only", "fault: wrong result", empty where there is no such case); `delegated_share` of the examples of all
    dtypes from 0 to 1; `constraints`: the reasons of refusals. And examples: `delegated`, `partly` and
    `nothing_delegated` are right, `in_stock` ran in the stock runtime, too.
    """
    table = views.matrix(run.results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    counted = ("delegated", "partly", "nothing_delegated", "in_stock")
    writer.writerow(["operator", *table.dtypes, "delegated_share", "constraints", *counted])
    for operator in table.operators:
        row = table.row(operator)
        words = [_words(table.cells.get((operator, dtype))) for dtype in table.dtypes]
        share = views.share(row)
        constraints = "; ".join(_constraint(reason, operator) for reason in views.reasons(row))
        parts = judges.parts(row)
        numbers = (parts.right, parts.partly, parts.without, views.in_stock(row))
        writer.writerow([operator, *words, "" if share is None else f"{share:.3f}", clean(constraints), *numbers])
    return text.getvalue()


def write_csv(path: Path, run: Run) -> None:
    """Write the CSV to a file."""
    write_text(path, support_csv(run))


def _words(result: CaseResult | None) -> str:
    if result is None:
        return ""
    verdict = result.verdict
    if verdict.is_fault:
        return f"{'known fault' if not result.is_fault else 'fault'}: {verdict.value}"
    if verdict in (Verdict.DELEGATED, Verdict.PARTLY):
        share = views.share([result])
        if verdict is Verdict.PARTLY and not share:
            return "partly delegated"
        return "delegated" if share == 1 else f"delegated {views.percent(share)}"
    word: str = _WORDS.get(verdict, verdict.value)
    return word


def _constraint(reason: views.Reason, operator: str) -> str:
    """A reason for another operator than the row's (one that it is decomposed into) names that operator."""
    others = [name for name in reason.operators if name != operator]
    return f"{', '.join(others)}: {reason.text}" if others and operator not in reason.operators else reason.text
