"""The profile as a table for a terminal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

from ..text import aligned, layer_lines, summary
from .measured import ITSELF, InstructionProfile, Origin, Times
from .parts import Part, folded

#: Modules or lines of one row that are named; the number of others is shown.
_NAMED: Final = 2
#: Characters of a module's path that are shown: its end.
_LONGEST: Final = 40
_HEADERS: Final = ("share", "ms", "spread", "CPU ms", "what", "module", "source")
#: The number of leading columns that are numbers.
_NUMBERS: Final = 4
#: As much in the table of a tree.
_TREE_NUMBERS: Final = 3
#: The share from which on a part of a tree is opened, and a runner is named.
_SMALLEST: Final = 0.01


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


def tree_of(whole: Part, by: str, most: int | None, *, in_order: bool) -> list[str]:
    """Lines of a table of a tree: its largest parts opened, as long as it has `most` rows at most.

    Parts come in execution order, or the longest first.
    """
    shown = whole if most is None or by != "module" else folded(whole)
    opened = _opened(shown, most)
    rows = list(_tree_rows(shown, 0, opened, shown.seconds or 1.0, in_order=in_order, most=most))
    shown_columns = -1 if by == "kernel" else None  # kernels are parts of who runs them
    heads = ("share", "ms", "operators", by, "runs on")[:shown_columns]
    return aligned(heads, [row[:shown_columns] for row in rows], _TREE_NUMBERS)


def _opened(whole: Part, most: int | None) -> Collection[int]:
    """The parts, by `id`, whose parts are shown: the whole, and from the largest on those that there is room for."""
    opened = {id(whole)}
    room = 1 << 60 if most is None else most - 1 - _height(whole)
    waiting = list(whole.parts)
    while waiting:
        largest = max(waiting, key=lambda part: part.seconds)
        waiting.remove(largest)
        if not largest.parts or (most is not None and largest.seconds < _SMALLEST * whole.seconds):
            continue
        if _height(largest) <= room:
            room -= _height(largest)
            opened.add(id(largest))
            waiting += largest.parts
    return opened


def _height(part: Part) -> int:
    return len(part.parts) + (part.own > 0)


def _tree_rows(
    part: Part, depth: int, opened: Collection[int], whole: float, *, in_order: bool, most: int | None
) -> Iterator[tuple[str, ...]]:
    yield _tree_row(part, depth, whole, is_closed=bool(part.parts) and id(part) not in opened)
    if id(part) not in opened:
        return
    parts = part.parts if in_order else sorted(part.parts, key=lambda item: -item.seconds)
    if part.own > 0 and parts:
        parts = [*parts, Part(ITSELF, part.own, part.count - sum(item.count for item in parts), part.own_runners)]
        parts = parts if in_order else sorted(parts, key=lambda item: -item.seconds)
    shown = parts if most is None else parts[:most]
    for item in shown:
        yield from _tree_rows(item, depth + 1, opened, whole, in_order=in_order, most=most)
    if len(shown) < len(parts):
        seconds = sum(item.seconds for item in parts[len(shown) :])
        count = sum(item.count for item in parts[len(shown) :])
        yield _tree_row(Part(f"and {len(parts) - len(shown)} more", seconds, count), depth + 1, whole)


def _tree_row(part: Part, depth: int, whole: float, *, is_closed: bool = False) -> tuple[str, ...]:
    name = part.name
    if part.each:
        name += f" ({len(part.each)}, {1e3 * min(part.each):.3f} to {milliseconds(max(part.each))} each)"
    parts = [(seconds, runner) for runner, seconds in part.runners.items() if seconds >= _SMALLEST * part.seconds]
    shares = [f"{runner} {100 * seconds / (part.seconds or 1.0):.0f} %" for seconds, runner in sorted(parts)[::-1]]
    return (
        f"{100 * part.seconds / whole:.1f} %",
        f"{1e3 * part.seconds:.3f}",
        str(part.count),
        f"{'  ' * depth}{name}{' ...' if is_closed else ''}",
        ", ".join(shares) if len(parts) > 1 else "".join(runner for _, runner in parts),
    )


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
