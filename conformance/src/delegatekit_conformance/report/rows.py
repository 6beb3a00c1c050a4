"""The rows of a backend's support table that no example reached, or whose every example the backend refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ..outcome import CaseResult, Verdict
from ..run import Run
from . import views

#: "cannot occur": no program has it; "no example": no example brought it; "refused": every example was refused;
#: "failed": no example was compiled, and lowering failed; "compiled": at least one example was.
State = Literal["cannot occur", "no example", "refused", "failed", "compiled"]
_SHORT: Final[Mapping[State, str]] = {
    "compiled": "compiled",
    "cannot occur": "cannot occur",
    "failed": "failed in every example",
    "refused": "refused in every example",
    "no example": "without an example",
}
#: This many reasons are shown for one row.
_REASONS: Final = 3


@dataclass(frozen=True)
class RowReach:
    """One operator of the support table: how many examples had it compiled, and how many had it refused."""

    operator: str
    state: State
    compiled: int = 0
    refused: int = 0
    #: Why the examples were refused, or why the name cannot occur.
    reasons: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The reasons in a line."""
        return "; ".join(self.reasons)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        values = {"operator": self.operator, "state": self.state, "compiled": self.compiled, "refused": self.refused}
        return values | {"reasons": list(self.reasons)}


def reach(run: Run) -> tuple[RowReach, ...] | None:
    """The rows of the backend's table in its order; None if the plugin does not report its rows (`documentation`)."""
    if run.backend.rows is None:
        return None
    compiled: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    reasons: dict[str, dict[str, None]] = {}
    failed = set()
    for result in run.results:
        compiled.update(result.taken)
        refused.update(result.refused)
        for line in result.reasons:
            operator, text = views.split_reason(line)
            reasons.setdefault(operator, {})[text] = None
        if Verdict.LOWERING_ERROR in result.counts:
            failed.add(result.tags.get("operator", ""))
    found = []
    for operator, impossible in run.backend.rows.items():
        state: State = "no example"
        if compiled[operator]:
            state = "compiled"
        elif refused[operator]:
            state = "refused"
        elif operator in failed:
            state = "failed"
        elif impossible:
            state = "cannot occur"
        why = [impossible] if state == "cannot occur" else list(reasons.get(operator, ())) if state == "refused" else []
        found.append(RowReach(operator, state, compiled[operator], refused[operator], tuple(why[:_REASONS])))
    return tuple(found)


def unreached(run: Run) -> tuple[RowReach, ...]:
    """The rows that were never compiled, the most actionable for a vendor first.

    Of a run of chosen cases, those without an example are left out: the others may bring them.
    """
    order = list(_SHORT)
    left_out = {"compiled"} if _is_whole(run) else {"compiled", "no example"}
    rows = [row for row in reach(run) or () if row.state not in left_out]
    return tuple(sorted(rows, key=lambda row: order.index(row.state)))


def summary(run: Run) -> str:
    """The rows in a sentence; empty where no program was tried."""
    if not any(_is_program(result) for result in run.results):
        return ""
    rows = reach(run)
    if rows is None:
        return "its rows cannot be read: the plugin has no hook `documentation` with a table of operators"
    counts = Counter(row.state for row in rows)
    told = [f"{counts[state]:,} {_SHORT[state]}" for state in _SHORT if counts[state]]
    chosen = "" if _is_whole(run) else " in the chosen cases"
    return f"{len(rows):,} rows of the support table{chosen}: {', '.join(told)}"


def _is_whole(run: Run) -> bool:
    return run.selection == "*" and run.shard is None


def _is_program(result: CaseResult) -> bool:
    return not views.is_rule(result)


def lines(run: Run) -> Sequence[tuple[str, str]]:
    """(operator, what is wrong) of the rows that were never compiled."""
    return [(row.operator, f"{_SHORT[row.state]}{': ' if row.reasons else ''}{row.words}") for row in unreached(run)]
