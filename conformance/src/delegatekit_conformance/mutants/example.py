"""An example of the suite with what came of it, and what it reaches of a plugin's code."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..outcome import Verdict


@dataclass(frozen=True)
class Seen:
    """One example with what came of it, with the plugin as it is."""

    case: str
    index: int
    #: The example, as `chosen.pack` gives it.
    packed: str
    #: CPU seconds, as far as they can be told beside the recording.
    seconds: float
    verdict: str
    #: How many operators the backend and the runtime run, and the bytes of the delegates.
    delegated_nodes: int
    fallback_calls: int
    delegate_bytes: int
    #: How many operators the delegates have.
    delegate_operators: int = 0
    #: How many of the delegated operators the delegates' debug handles name.
    named_nodes: int = 0
    #: How many damages of a delegate its runtime refuses.
    damages_refused: int = 0
    #: The operators that the backend takes.
    taken: tuple[str, ...] = ()
    #: The reasons of its refusals, each as a number (`numbers_of`).
    reasons: tuple[int, ...] = ()
    #: What is told of its delegates' operators, in short (`short`).
    insides: tuple[str, ...] = ()

    @property
    def is_rule(self) -> bool:
        """Whether it asks something of its own: it is no program that is tried."""
        return self.verdict == Verdict.PASSED.value


@dataclass(frozen=True)
class Example(Seen):
    """One example with what it reaches."""

    #: The lines that it runs of each of the plugin's files: bit n is line n. Of a shader its blocks (`blocks`).
    lines: Mapping[str, int] = field(kw_only=True)
    tags: Mapping[str, str] = field(kw_only=True)
    #: Whether it was recorded with other sources, whose code it runs is still there.
    carried: bool = False

    def reaches(self, file: str, lines: int) -> bool:
        """Whether it runs one of the lines."""
        return bool(self.lines.get(file, 0) & lines)

    @property
    def total(self) -> int:
        """How many lines it runs."""
        return sum(mask.bit_count() for mask in self.lines.values())


def numbers_of(reasons: Iterable[str]) -> tuple[int, ...]:
    """Reasons as numbers that tell them apart."""
    return tuple(sorted(zlib.crc32(reason.encode()) for reason in reasons))


def short(insides: Iterable[str]) -> tuple[str, ...]:
    """The checksums of lines of `insides.line_of`."""
    return tuple(" ".join(line.split(" ", 2)[:2]) for line in insides)


def mask(first: int, last: int) -> int:
    """The lines from `first` to `last`.

    >>> bin(mask(2, 3))
    '0b1100'
    """
    return (1 << last + 1) - (1 << first)
