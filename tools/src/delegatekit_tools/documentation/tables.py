"""Operators, options, targets and schemes as tables of Markdown, and operators as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delegatekit_api import BackendOptions
    from delegatekit_api.devices import TargetInfo
    from delegatekit_api.documentation import OperatorEntry, OperatorTable
    from delegatekit_api.schemes import QuantizationScheme


def operator_section(table: OperatorTable, *, dynamic: bool, dialect: str = "the edge dialect") -> list[str]:
    """The operators and their conditions, as lines of Markdown.

    `dynamic` says that the backend takes sizes that change, `dialect` is the words, or the link, for the dialect.
    """
    lines = [
        "## Operators",
        "",
        f"{len(table.entries)} operators of {dialect}. "
        "Operators that are not in the table may still be taken after decomposition: `delegatekit explain` shows it "
        "for a model.",
        "",
        "* *whole*: the backend asks the core to keep the operator; the others have no smaller pieces to fall into, or "
        "are what PyTorch decomposes to.",
        "* *passenger*: taken only in a partition with an operator that is not a passenger.",
        "",
        "Sizes may change from call to call, under the conditions given."
        if dynamic
        else "Sizes are the same in every call.",
    ]
    if table.common:
        lines += ["", "Conditions for every operator:", "", *(f"* {text}" for text in table.common)]
    return [*lines, "", *_table(("operator", "whole", "passenger", *table.columns), map(_operator, table.entries)), ""]


def operator_csv(table: OperatorTable) -> str:
    """The operators as CSV, a line each: operator, whole, passenger, and the conditions in each column of the table."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["operator", "whole", "passenger", *table.columns])
    writer.writerows(
        [entry.operator, _mark(entry.whole), _mark(entry.passenger), *entry.conditions] for entry in table.entries
    )
    return text.getvalue()


def option_table(options: type[BackendOptions]) -> list[str]:
    """The options, as lines of Markdown."""
    rows = []
    for info in options.describe():
        choices = "" if info.choices is None else " One of: " + ", ".join(map(str, info.choices)) + "."
        rows.append((f"`{info.name}`", f"`{info.type}`", _default(info.default), info.help + choices))
    return _table(("option", "type", "default", "meaning"), rows) if rows else ["None."]


def target_table(targets: Sequence[TargetInfo], backend: str) -> list[str]:
    """The devices that a backend compiles for, as lines of Markdown."""
    rows = [
        (f"`{item.name}`", item.summary, " ".join(f"`{backend}.{key}={value}`" for key, value in item.options.items()))
        for item in targets
    ]
    return _table(("target", "what", "options"), rows)


def scheme_section(scheme: QuantizationScheme, backend: str) -> list[str]:
    """A scheme with its rules, as lines of Markdown."""
    from delegatekit.quantization import schemes_text

    return [f"## {scheme.name}", "", "```text", schemes_text({backend: [scheme]}), "```", ""]


def _operator(entry: OperatorEntry) -> tuple[str, ...]:
    return (f"`{entry.operator}`", _mark(entry.whole), _mark(entry.passenger), *entry.conditions)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    return [*head, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)]


def _default(value: Any) -> str:
    return "empty" if isinstance(value, tuple | frozenset) and not value else f"`{value}`"


def _mark(value: bool | None) -> str:
    return "in some calls" if value is None else "yes" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
