"""The parts of a comparison as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from ..text import aligned
from .result import Divergence, JudgedPass, Measured, Operator

_HEADERS: Final = ("of bound", "error", "bound", "SQNR dB", "operator", "runs on", "module", "source")
#: The number of leading columns that are numbers.
_NUMBERS: Final = 4
#: The number of operators of a run, and of reasons for operators not compared, that are listed.
_LISTED: Final = 8


def divergence(first: Divergence) -> list[str]:
    """The facts about the first operator that diverges."""
    item = first.operator
    by = "changed by" if first.kind == "pass" else "on"
    lines = [f"first operator that diverges: {item.name} ({item.node}), {by} {item.place}"]
    lines += [f"  {what}: {text}" for what, text in (("module", item.module), ("source", item.source)) if text]
    lines.append(f"  {words(item.measured)}")
    if first.kind == "pass":
        lines.append("  the pass was given the model, and left a program that computes something else")
    elif first.kind == "alone":
        lines.append(f"  it {'fails' if item.measured.fails else 'is wrong'} when it is lowered by itself, too")
    else:
        others = [f"{other.name} ({other.node})" for other in first.run]
        more = f" and {len(others) - _LISTED} more" if len(others) > _LISTED else ""
        lines.append("  it is right when it is lowered by itself; the smallest run of operators that shows it:")
        lines.append(f"  {', '.join(others[:_LISTED])}{more}")
    if first.no_snippet:
        lines.append(f"  no program that shows it: {first.no_snippet}")
    return lines


def judged_pass(item: JudgedPass) -> str:
    """A pass, and what it did to the results."""
    count = f"{item.changes} change{'s' if item.changes != 1 else ''}"
    if item.measured.right:
        return f"pass {item.name}, {count}: {words(item.measured)}"
    return f"pass {item.name}, {count}: wrong; {words(item.measured)}; first in {item.change}"


def words(measured: Measured) -> str:
    """The error of a tensor against the referee's."""
    parts = [measured.difference or "right"]
    if measured.error is not None and measured.right:
        parts.append(f"relative error {measured.error:.3g} (bound {measured.bound:.3g})")
    if measured.ties:
        parts.append(f"{measured.ties} of its choices are not PyTorch's, but ties within the bound")
    if measured.sqnr is not None:
        parts.append(f"SQNR {decibels(measured.sqnr)} dB")
    if measured.absolute is not None and measured.relative is not None:
        parts.append(f"largest error {measured.absolute:.3g}, of an element {measured.relative:.3g} of itself")
    return "; ".join(parts)


def table(compared: Sequence[Operator], rows: int | None) -> list[str]:
    """Lines of a table of the `rows` operators that come closest to their bounds, or exceed them."""
    worst = sorted(compared, key=lambda item: (item.measured.right, -item.measured.share))
    shown = worst if rows is None else worst[:rows]
    if not shown:
        return []
    lines = aligned(_HEADERS, list(map(_cells, shown)), _NUMBERS)
    if len(shown) < len(worst):
        lines.append(f"and {len(worst) - len(shown)} more, which are further from their bounds")
    return lines


def _cells(item: Operator) -> tuple[str, ...]:
    measured = item.measured
    return (
        "wrong" if not measured.right else f"{100 * measured.share:.0f} %",
        "" if measured.error is None else f"{measured.error:.2g}",
        "" if measured.bound is None else f"{measured.bound:.2g}",
        "" if measured.sqnr is None else decibels(measured.sqnr),
        item.name,
        item.place,
        item.module,
        PurePath(item.source.partition(": `")[0]).name,
    )


def skipped(operators: Sequence[Operator]) -> list[str]:
    """Lines about the operators that were not compared."""
    found = [item for item in operators if item.skipped]
    if not found:
        return []
    lines = [f"{len(found)} operators were not compared:"]
    lines += [f"  {item.name} ({item.node}): {item.skipped}" for item in found[:_LISTED]]
    return [*lines, f"  and {len(found) - _LISTED} more"] if len(found) > _LISTED else lines


def decibels(ratio: float) -> str:
    """A ratio of signal to noise in dB, as text."""
    return f"{ratio:.1f}" if math.isfinite(ratio) else str(ratio)
