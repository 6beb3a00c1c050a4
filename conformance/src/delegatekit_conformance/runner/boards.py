"""Judges between boards: which result of a case counts, and which boards are trusted no more.

A fault counts when a second board shows it, too. Boards that disagree are judged by a third. One that is out of reach
after a case gets no more cases until it answers again; one that was outvoted gets none at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from ..cases import Case
from ..outcome import CaseResult, Outcome, Tally, Verdict

#: Boards that may be lost with one case before the case is blamed, and times that a board may come back.
_LOSSES = 3
_RETURNS = 2


class NoBoardError(Exception):
    """No board is left for some cases; the text says what became of them."""


@dataclass(frozen=True)
class Attempt:
    """A case on a board; `away` says why the board was out of reach afterwards."""

    board: str
    result: CaseResult | None
    away: str = ""


@dataclass(frozen=True)
class Again:
    """The case is to be tried on another board: one of these."""

    boards: tuple[str, ...]


class Boards:
    """The boards of a run, by keys, and what they did."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` has the boards' names for people, by key."""
        self.names = dict(names)
        #: The boards that get no cases, with the reason; those of `absent` may come back.
        self.quarantined: dict[str, str] = {}
        self.absent: set[str] = set()
        self._attempts: dict[str, list[Attempt]] = {}
        self._returns: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._events: dict[str, list[str]] = {key: [] for key in names}

    @property
    def trusted(self) -> list[str]:
        """The boards that get cases."""
        return [key for key in self.names if key not in self.quarantined]

    def take(self, case: Case, attempt: Attempt) -> CaseResult | Again | None:
        """What follows from an attempt: see `settle`."""
        tried = self._attempts.setdefault(case.name, [])
        tried.append(attempt)
        self._tried[attempt.board] += 1
        if attempt.away:
            self._quarantine(attempt.board, f"{attempt.away} (after {case.name})", may_return=True)
        return self.settle(case, final=False)

    def settle(self, case: Case, *, final: bool) -> CaseResult | Again | None:
        """The case's result by what is known, or the boards that are to try it; None if none has, or can.

        `final`: no other board will try it.
        """
        tried = self._attempts.get(case.name, [])
        votes = [item for item in tried if item.result is not None and not item.away]
        bad = [item for item in votes if item.result is not None and item.result.verdict.is_fault]
        good = [item for item in votes if item not in bad]
        if len(good) > len(bad):
            return self._decided(case, good, bad)
        if len(bad) > max(len(good), 1):
            return self._decided(case, bad, good)
        lost = [item for item in tried if item.away]
        voters = {item.board for item in votes}
        others = [key for key in self.trusted if key not in voters] or sorted(self.absent - voters)
        if others and not final and len(lost) < _LOSSES:
            return Again(tuple(others))
        if bad:
            return self._said(case, bad[0], note="the boards disagree" if good else "")
        return self._blamed(case, lost) if len(lost) >= _LOSSES else None

    def returned(self, board: str) -> bool:
        """Trust an absent board again, unless it has been away too often."""
        self._returns[board] += 1
        self.absent.discard(board)
        if self._returns[board] > _RETURNS:
            return False
        del self.quarantined[board]
        self._events[board].append("answered again")
        return True

    def told(self) -> dict[str, str]:
        """What each board did, by its name, in a line."""
        told = {}
        for key, name in self.names.items():
            state = [f"in quarantine: {self.quarantined[key]}"] if key in self.quarantined else []
            events = [event for event in self._events[key] if event not in self.quarantined.get(key, "")]
            told[f"board {name}"] = "; ".join([f"{self._tried[key]} cases", *events, *state])
        return told

    def _quarantine(self, board: str, reason: str, *, may_return: bool) -> None:
        if board in self.quarantined:
            return
        self.quarantined[board] = reason
        self._events[board].append(reason)
        if may_return:
            self.absent.add(board)

    def _decided(self, case: Case, winners: Collection[Attempt], losers: Iterable[Attempt]) -> CaseResult:
        names = " and ".join(self.names[item.board] for item in winners)
        for loser in losers:
            assert loser.result is not None
            reason = f"its result of {case.name} ({loser.result.verdict.value}) is not that of {names}"
            self._quarantine(loser.board, reason, may_return=False)
        return self._said(case, next(iter(winners)))

    def _said(self, case: Case, attempt: Attempt, note: str = "") -> CaseResult:
        """The result of an attempt, with what all boards said, this one first."""
        assert attempt.result is not None
        tried = sorted(self._attempts[case.name], key=lambda item: item is not attempt)
        detail = "; ".join(filter(None, (attempt.result.detail, note)))
        return replace(attempt.result, detail=detail, boards=tuple(map(self._line, tried)))

    def _line(self, attempt: Attempt) -> str:
        name = self.names[attempt.board]
        if attempt.away or attempt.result is None:
            return f"{name}: {attempt.away or 'lost'}"
        return f"{name}: {attempt.result.verdict.value}"

    def _blamed(self, case: Case, lost: Iterable[Attempt]) -> CaseResult:
        tally = Tally(case.name, case.tags)
        words = "; ".join(map(self._line, lost))
        tally.add(Outcome(Verdict.CRASH, f"the boards that ran it were lost: {words}", blame="backend"))
        return replace(tally.result(), boards=tuple(map(self._line, lost)))
