"""The profile as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ..text import aligned, layer_lines, summary
from .measured import InstructionProfile, Origin, Times

#: Modules or lines of one row that are named; the number of others is shown.
_NAMED: Final = 2
#: Characters of a module's path that are shown: its end.
_LONGEST: Final = 40
_HEADERS: Final = ("share", "ms", "spread", "CPU ms", "what", "module", "source")
#: The number of leading columns that are numbers.
_NUMBERS: Final = 4


@dataclass(frozen=True)
class Row:
    """An instruction, or an operator inside its delegate."""

    what: str
    times: Times
    origin: Origin


def rows_of(instructions: Iterable[InstructionProfile]) -> list[Row]:
    """The instructions in their order, each with the operators inside its delegate after it."""
    found = []
    for item in instructions:
        made_by = f" ({item.made_by})" if item.made_by else ""
        found.append(Row(f"{item.position}: {item.calls}{made_by}", item.times, item.origin))
        found += [
            Row(f"{item.position}.{index}: {operator.name}", operator.times, operator.origin)
            for index, operator in enumerate(item.operators)
        ]
    return found


def table_of(rows: Sequence[Row], most: int | None, whole: float) -> list[str]:
    """Lines of a table of the first `most` rows, whose shares are of `whole` seconds."""
    shown = rows if most is None else rows[:most]
    lines = aligned(_HEADERS, [_cells(row, whole or 1.0) for row in shown], _NUMBERS)
    if len(shown) < len(rows):
        rest = sum(row.times.median for row in rows[len(shown) :])
        lines.append(f"and {len(rows) - len(shown)} more, {milliseconds(rest)} together")
    return lines


def estimate_lines(instructions: Iterable[InstructionProfile]) -> list[str]:
    """The estimates of the backends' compilers for the delegates on their devices, with the longest layers."""
    lines: list[str] = []
    for item in instructions:
        if item.estimate is not None:
            lines.append(f"on the device, {item.position}: {item.calls} is expected to take {summary(item.estimate)}")
            lines += [f"  {line}" for line in layer_lines(item.estimate)]
    return lines


def times_of(times: Times) -> str:
    """Median, spread and CPU time in one line."""
    cpu = "" if times.median_cpu is None else f", {milliseconds(times.median_cpu)} CPU"
    return f"{milliseconds(times.median)} (spread {milliseconds(times.spread)}){cpu}"


def milliseconds(seconds: float) -> str:
    """Seconds, in words.

    >>> milliseconds(0.0125)
    '12.500 ms'
    """
    return f"{1e3 * seconds:.3f} ms"


def _cells(row: Row, whole: float) -> tuple[str, ...]:
    times = row.times
    return (
        f"{100 * times.median / whole:.1f} %",
        f"{1e3 * times.median:.3f}",
        f"{1e3 * times.spread:.3f}",
        "" if times.median_cpu is None else f"{1e3 * times.median_cpu:.3f}",
        row.what,
        _few(row.origin.modules),
        _few([_short(source) for source in row.origin.sources]),
    )


def _short(source: str) -> str:
    """ "/path/model.py:12: `x = self.a(x)`" without folders and code."""
    return PurePath(source.partition(": `")[0]).name


def _few(names: Sequence[str]) -> str:
    more = f" (and {len(names) - _NAMED} more)" if len(names) > _NAMED else ""
    return "; ".join(name if len(name) <= _LONGEST else f"...{name[-_LONGEST:]}" for name in names[:_NAMED]) + more
