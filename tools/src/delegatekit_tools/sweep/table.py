"""The rows of a sweep as cells: for the terminal, for text and for the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from delegatekit_toolkit.number_text import human_size, human_time

from .row import FLOAT, OutputErrors, Row

#: Headers of the columns; numbers sort as numbers in the page.
HEADERS: Final = (
    "backend",
    "target",
    "scheme",
    "result",
    "delegates",
    "operators",
    "estimate",
    "memory",
    "here",
    "CPU here",
    "file",
    "SQNR dB",
    "largest error",
    "cosine",
    "differ",
)
#: Operators and rows that are named in a sentence, and characters of a sentence.
_NAMED: Final = 3
_LONGEST: Final = 160
#: The first columns, which name a row.
_NAMES: Final = 4
#: Outputs that are named in a sentence.
_OUTPUTS: Final = 4


@dataclass(frozen=True)
class Cell:
    """The text, and the number by which a column sorts; None if unknown."""

    text: str
    value: float | None = None


def cells(row: Row) -> tuple[Cell, ...]:
    """The cells of a row, one for each header."""
    taken = None if not row.operators else (row.delegated or 0) / row.operators
    memory = sum(row.estimated_memory.values()) or None
    return (
        Cell(row.backend),
        Cell(row.target),
        Cell(row.scheme),
        Cell(row.outcome),
        Cell("" if row.delegates is None else str(row.delegates), row.delegates),
        Cell("" if row.operators is None else f"{row.delegated}/{row.operators}", taken),
        _time(row.estimated_seconds),
        Cell(", ".join(f"{name} {human_size(size)}" for name, size in row.estimated_memory.items() if size), memory),
        _time(row.wall_seconds),
        _time(row.cpu_seconds),
        Cell("" if row.file_size is None else human_size(row.file_size), row.file_size),
        _number(row.sqnr, ".1f"),
        _number(row.largest_error, ".3g"),
        _number(row.cosine, ".6f"),
        _different(row.different),
    )


#: Headers of the table of outputs.
OUTPUT_HEADERS: Final = ("output", "type", "SQNR dB", "largest error", "cosine", "differ")


def output_cells(item: OutputErrors) -> tuple[Cell, ...]:
    """The cells of an output's errors, one for each header."""
    return (
        Cell(item.name),
        Cell(item.dtype),
        _number(item.sqnr, ".1f"),
        _number(item.largest_error, ".3g"),
        _number(item.cosine, ".6f"),
        Cell("") if item.is_measure else _different((item.different, item.elements)),
    )


def said_of(item: OutputErrors) -> str:
    """ "[1] 62.1 dB, largest error 0.003", "[2] (int64) 3 of 100 differ"."""
    if not item.is_measure:
        return f"{item.name} ({item.dtype}) {item.different} of {item.elements} differ"
    _, _, sqnr, largest, *_ = output_cells(item)
    return f"{item.name} {sqnr.text}{'' if sqnr.text == 'exact' else ' dB'}, largest error {largest.text}"


def notes(row: Row) -> list[str]:
    """Sentences about a row: why it does not compile, whether another choice may explain its errors, the operators left
    out and why, why it was not run, and the errors of each output where there are several."""
    found = [f"{row.outcome}: {row.reason}"] if row.reason else []
    if row.may_have_chosen_otherwise:
        names = ", ".join(operator.split(".")[1] for operator in row.selecting[:_NAMED])
        scheme = "" if row.scheme == FLOAT else f" --scheme {row.scheme}"
        judge = f"`delegatekit compare -b {row.backend}{scheme}` tells if that is right"
        found.append(f"{names} may choose another of two nearly equal elements: {judge}")
    left = [f"{item.operator} x{item.count} ({item.reason})" for item in row.left_out[:_NAMED]]
    more = f" and {len(row.left_out) - _NAMED} more" if len(row.left_out) > _NAMED else ""
    if left and not row.reason:
        found.append(f"left to the runtime: {', '.join(left)}{more}")
    if row.not_run:
        found.append(f"not run here: {row.not_run}")
    if len(row.outputs) > 1:
        more = f" and {len(row.outputs) - _OUTPUTS} more" if len(row.outputs) > _OUTPUTS else ""
        found.append(f"outputs: {'; '.join(map(said_of, row.outputs[:_OUTPUTS]))}{more}")
    return [text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..." for text in found]


def used_columns(rows: Sequence[Sequence[Cell]]) -> list[int]:
    """The positions of the columns in which some row has a text, and of those that name a row."""
    return [index for index in range(len(HEADERS)) if index < _NAMES or any(row[index].text for row in rows)]


def text_table(rows: Sequence[Row]) -> str:
    """The rows as aligned text, followed by notes about some."""
    found = [cells(row) for row in rows]
    table = [HEADERS, *(tuple(cell.text for cell in line) for line in found)]
    used = used_columns(found)
    widths = {index: max(len(line[index]) for line in table) for index in used}
    lines = ["  ".join(line[index].ljust(widths[index]) for index in used).rstrip() for line in table]
    lines.insert(1, "  ".join("-" * widths[index] for index in used))
    told: dict[str, list[str]] = {}
    for row in rows:
        for note in notes(row):
            told.setdefault(note, []).append(name_of(row))
    for note, names in told.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lines.append(f"{', '.join(names[:_NAMED])}{more}: {note}")
    return "\n".join(lines)


def name_of(row: Row) -> str:
    """ "acme chip-x", with the scheme if it is quantized."""
    return " ".join(filter(None, (row.backend, row.target, "" if row.scheme == "float" else row.scheme)))


def _time(seconds: float | None) -> Cell:
    return Cell("") if seconds is None else Cell(human_time(seconds), seconds)


def _different(found: tuple[int, int] | None) -> Cell:
    if found is None:
        return Cell("")
    count, all_of_them = found
    return Cell(f"{count} of {all_of_them}" if count else "none", count / all_of_them)


def _number(value: float | None, form: str) -> Cell:
    if value is None:
        return Cell("")
    return Cell("exact" if value == math.inf else format(value, form), value)
