"""An example of the suite with its outcome, and the lines of a plugin's code that it reaches."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..outcome import Verdict


@dataclass(frozen=True)
class Seen:
    """One example with its outcome with the unchanged plugin."""

    case: str
    index: int
    #: The example, as `chosen.pack` gives it.
    packed: str
    #: CPU seconds, as far as they can be measured beside the recording.
    seconds: float
    verdict: str
    #: Number of operators that the backend and the runtime run, and the bytes of the delegates.
    delegated_nodes: int
    fallback_calls: int
    delegate_bytes: int
    #: Number of operators in the delegates.
    delegate_operators: int = 0
    #: Number of delegated operators that the delegates' debug handles name.
    named_nodes: int = 0
    #: Number of damaged copies of a delegate that its runtime refuses.
    damages_refused: int = 0
    #: The operators that the backend takes.
    taken: tuple[str, ...] = ()
    #: The reasons of its refusals, each as a number (`numbers_of`).
    reasons: tuple[int, ...] = ()
    #: The reported operators of its delegates, in short (`short`).
    insides: tuple[str, ...] = ()

    @property
    def is_rule(self) -> bool:
        """True if it checks a rule: no program is tried."""
        return self.verdict == Verdict.PASSED.value


@dataclass(frozen=True)
class Example(Seen):
    """One example with the lines that it reaches."""

    #: The lines that it runs of each of the plugin's files: bit n is line n. Of a shader its blocks (`blocks`).
    lines: Mapping[str, int] = field(kw_only=True)
    tags: Mapping[str, str] = field(kw_only=True)
    #: True if it was recorded with other sources; the code that it runs is unchanged.
    carried: bool = False

    def reaches(self, file: str, lines: int) -> bool:
        """True if it runs one of the lines."""
        return bool(self.lines.get(file, 0) & lines)

    @property
    def total(self) -> int:
        """The number of lines that it runs."""
        return sum(mask.bit_count() for mask in self.lines.values())


def numbers_of(reasons: Iterable[str]) -> tuple[int, ...]:
    """Reasons as distinct numbers."""
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
