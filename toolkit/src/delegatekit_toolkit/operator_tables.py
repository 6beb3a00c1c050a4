"""Support tables as the plain data of a backend's documentation page.

`delegatekit_toolkit.hooks.lazy_documentation` is the hook of a backend with one table. One with several writes it out:

    @hookimpl
    def documentation() -> BackendDocumentation:
        return BackendDocumentation(operator_table({"small chips": SMALL, "large chips": LARGE}))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delegatekit_api.documentation import OperatorEntry, OperatorTable

from .support import Constraint, Row, SupportTable


def operator_table(tables: Mapping[str, SupportTable[Any]], *, lacking: str = "") -> OperatorTable:
    """Support tables side by side: column title -> table, one for each family of devices or kind of numbers.

    Common constraints are those of the first table, a row's notes beside its conditions those of the first that has it.
    `lacking` is the text for operators that a table lacks. Raises ValueError if the tables have different operators and
    there is no such text, or if a constraint has no docstring.
    """
    first, *others = tables.values()
    if not lacking and any(other.keys() != first.keys() for other in others):
        raise ValueError("the support tables have different operators")
    entries = []
    for operator in sorted({name for table in tables.values() for name in table}, key=str.lower):
        row = next(table[operator] for table in tables.values() if operator in table)
        texts = [conditions(table[operator]) if operator in table else lacking for table in tables.values()]
        same = ["the same" if texts[0] and text == texts[0] else text for text in texts[1:]]
        passenger = None if callable(row.passenger) else row.passenger
        entries.append(OperatorEntry(operator, (texts[0], *same), row.keep, passenger))
    return OperatorTable(tuple(entries), tuple(tables), tuple(map(describe, first.common)))


def conditions(row: Row[Any]) -> str:
    """The conditions of a row, a sentence each.

    >>> from .constraints import equals
    >>> from .support import row
    >>> conditions(row("add.Tensor", print, equals("alpha", 1), static_only=True))
    'No size changes from call to call. alpha is 1.'
    """
    text = " ".join(map(describe, row.constraints))
    return f"No size changes from call to call. {text}".strip() if row.static_only else text


def describe(constraint: Constraint) -> str:
    """The first line of a constraint's docstring. Raises ValueError if it has none."""
    text = (constraint.__doc__ or "").strip()
    if not text:
        raise ValueError(f"the constraint {constraint} has no docstring")
    return text.splitlines()[0]
