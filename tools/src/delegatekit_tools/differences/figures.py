"""The figures of two files, and the operators that moved, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delegatekit_toolkit.number_text import human_size, human_time

BYTES, SECONDS, COUNT = "bytes", "seconds", "count"
#: The factor from which on a change is told as one.
_MANY: Final = 10
#: Places of an operator that are named.
_NAMED: Final = 3
#: The place of an operator that a file does not have.
ABSENT: Final = "nowhere"


@dataclass(frozen=True)
class Figure:
    """A figure of both files; None where a file lacks it. `method` is empty for those of the whole file."""

    method: str
    name: str
    #: "bytes", "seconds" or "count".
    unit: str
    before: float | None
    after: float | None
    #: The distance that figures may have without meaning: the larger of both spreads of measured times.
    spread: float = 0.0

    @property
    def changed(self) -> bool:
        """True if the figures differ, by more than their spread if they were measured."""
        if self.before is None or self.after is None:
            return self.before != self.after
        return abs(self.after - self.before) > self.spread

    @property
    def change(self) -> str:
        """The change in words: "+12.5 %", "33 times", "new", "gone", "the same"."""
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        if not self.changed:
            return "the same"
        if self.unit == COUNT:
            return f"{self.after - self.before:+,.0f}"
        if not self.before:
            return "new"
        ratio = self.after / self.before
        return f"{ratio:,.0f} times" if ratio >= _MANY else f"{100 * (ratio - 1):+.1f} %"

    def shown(self, value: float | None) -> str:
        """One of the figures as text."""
        if value is None:
            return ""
        if self.unit == SECONDS:
            return human_time(value)
        return human_size(round(value)) if self.unit == BYTES else f"{value:,.0f}"


@dataclass(frozen=True)
class Moved:
    """Operators of one kind that went from one place to another: backends, "the runtime", or "nowhere"."""

    method: str
    operator: str
    before: str
    after: str
    #: Where each is: its module, or its source line.
    places: tuple[str, ...]

    @property
    def count(self) -> int:
        """The number of these operators."""
        return len(self.places)

    @property
    def where(self) -> str:
        """The first places in words."""
        known = list(dict.fromkeys(filter(None, self.places)))
        return ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")

    def __str__(self) -> str:
        return f"{self.operator} x{self.count}: {self.before} -> {self.after}" + f"   [{self.where}]" * bool(self.where)
