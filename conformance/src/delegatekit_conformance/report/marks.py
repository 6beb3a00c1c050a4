"""The appearance of a verdict: a symbol that is clear without color, and a kind that decides the color."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..outcome import CaseResult, Verdict


@dataclass(frozen=True)
class Mark:
    """A verdict in a cell. `kind` is one of "good", "partly", "fallback", "none", "warning" and "fault"."""

    symbol: str
    kind: str


_MARKS: Mapping[Verdict, Mark] = {
    Verdict.DELEGATED: Mark("●", "good"),
    Verdict.PASSED: Mark("✓", "good"),
    Verdict.PARTLY: Mark("◐", "partly"),
    Verdict.FALLBACK: Mark("○", "fallback"),
    Verdict.REFUSED: Mark("–", "none"),
    Verdict.UNAVAILABLE: Mark("N", "none"),
    Verdict.NOT_EXPORTABLE: Mark("E", "none"),
    Verdict.NOT_APPLICABLE: Mark("·", "none"),
    Verdict.UNDETECTED: Mark("?", "warning"),
    Verdict.LOWERING_ERROR: Mark("L", "fault"),
    Verdict.LOAD_ERROR: Mark("O", "fault"),
    Verdict.RUN_ERROR: Mark("R", "fault"),
    Verdict.MISMATCH: Mark("W", "fault"),
    Verdict.CLAIM: Mark("C", "fault"),
    Verdict.STOCK: Mark("S", "fault"),
    Verdict.VIOLATION: Mark("V", "fault"),
    Verdict.CRASH: Mark("X", "fault"),
    Verdict.TIMEOUT: Mark("T", "fault"),
}
#: The colors of the console.
STYLES: Mapping[str, str] = {
    "good": "blue",
    "partly": "cyan",
    "fallback": "yellow",
    "none": "dim",
    "warning": "magenta",
    "fault": "bold red",
}
#: Faults of the runtime's own operators, without the backend.
CORE = Mark("!", "core")
#: A fault that the vendor's expectations name.
EXPECTED = "expected"


def mark(verdict: Verdict) -> Mark:
    """The mark of a verdict."""
    return _MARKS[verdict]


def mark_of(result: CaseResult) -> Mark:
    """The mark of a case: an expected fault keeps its letter, but has a kind of its own."""
    if not result.counts and result.core_faults:
        return CORE
    shown = mark(result.verdict)
    return Mark(shown.symbol, EXPECTED) if result.verdict.is_fault and not result.is_fault else shown
