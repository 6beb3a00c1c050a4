"""Changes between two runs: for updates of a driver, a compiler or a wheel."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..described import Saying, altered
from ..insides import told_otherwise
from ..outcome import CaseResult, Verdict
from ..run import Run
from . import judges, rows, views
from .text import cell, clean, code, first_line

#: Ratio from which a time counts as changed. Both the backend's own time and its time against eager,
#: measured in the same run, must have changed as much, which rules out a busy machine and another torch.
LATENCY_THRESHOLD = 1.5
#: CPU seconds by which a case must differ, too: less is noise of imports and caches.
CPU_FLOOR = 0.5
#: Ratio from which the CPU time of all cases counts as another.
_PACE = 1.2
#: Ratio from which the bytes of delegates count as larger. Lowering has no noise: this leaves out a longer version.
_LARGER = 1.01
#: The share of delegated examples must differ by this much if the two runs did not try the same examples.
_SHARE = 0.1
#: This many lines of a group are printed.
_LINES = 30

#: "faults" and "lost" are regressions.
Group = Literal[
    "faults",
    "lost",
    "fixed",
    "gained",
    "verdicts",
    "slower",
    "faster",
    "larger",
    "smaller",
    "more_work",
    "less_work",
    "less_careful",
    "more_careful",
    "less_named",
    "more_named",
    "said",
    "reasons",
    "insides",
    "core",
    "only_old",
    "only_new",
]
_TITLES: dict[Group, str] = {
    "faults": "New faults",
    "lost": "No longer delegated, tried or offered",
    "fixed": "Fixed",
    "gained": "Newly delegated, tried or offered",
    "verdicts": "Other verdicts that changed",
    "slower": "Slower",
    "faster": "Faster",
    "larger": "Larger delegates",
    "smaller": "Smaller delegates",
    "more_work": "More work for the same operators",
    "less_work": "Less work for the same operators",
    "less_careful": "Damage that is no longer refused",
    "more_careful": "Damage that is refused now",
    "less_named": "Operators that no debug handle names any more",
    "more_named": "Operators that a debug handle names now",
    "said": "The backend's description of itself",
    "reasons": "Other reasons for refusals",
    "insides": "The same delegates, reported differently",
    "core": "New faults of core",
    "only_old": "Only in the old run",
    "only_new": "Only in the new run",
}
#: How much of it the backend runs, if seen: examples that were compiled and could not be run say nothing.
_RANK = {
    Verdict.PASSED: 5,
    Verdict.DELEGATED: 5,
    Verdict.PARTLY: 4,
    Verdict.UNAVAILABLE: 3,
    Verdict.FALLBACK: 2,
    Verdict.REFUSED: 1,
    Verdict.NOT_APPLICABLE: 0,
}
#: The backend ran some of it.
_RAN = (Verdict.DELEGATED, Verdict.PARTLY)


def is_lost(old: Verdict, new: Verdict) -> bool:
    """True if the backend runs less of a case with the new verdict than with the old one, and no fault is reported.

    Also if a case that was seen before can no longer be tried, for any reason.
    """
    return old in _RANK and new in _RANK and _RANK[new] < _RANK[old]


class _Counted(Protocol):
    """Counts of the work that the backend runs."""

    @property
    def delegated_nodes(self) -> int: ...

    @property
    def fallback_calls(self) -> int: ...

    @property
    def delegate_bytes(self) -> int: ...

    @property
    def delegate_operators(self) -> int: ...

    @property
    def named_nodes(self) -> int: ...

    @property
    def damages_refused(self) -> int: ...

    @property
    def taken(self) -> Collection[str]: ...


def is_fewer(old: _Counted, new: _Counted) -> bool:
    """True if the backend runs fewer operators of the same examples, and the runtime more."""
    return new.delegated_nodes < old.delegated_nodes and new.fallback_calls > old.fallback_calls


def is_larger(old: _Counted, new: _Counted) -> bool:
    """True if the delegates of the same operators have more bytes: they do more, or hold more, for the same."""
    return old.delegated_nodes == new.delegated_nodes and new.delegate_bytes > _LARGER * old.delegate_bytes > 0


def is_more_work(old: _Counted, new: _Counted) -> bool:
    """True if the delegates of the same operators have more operators: a fusion or a folding no longer happens."""
    return old.delegated_nodes == new.delegated_nodes and new.delegate_operators > old.delegate_operators > 0


def taken_apart(old: _Counted, new: _Counted) -> list[str]:
    """Operators that the backend took whole, and now takes as the operators that they decompose to."""
    if new.delegated_nodes <= old.delegated_nodes:
        return []
    return [operator for operator in old.taken if operator not in new.taken]


def is_less_careful(old: _Counted, new: _Counted) -> bool:
    """True if the backend's runtime refuses fewer damages of delegates of the same size."""
    return old.delegate_bytes == new.delegate_bytes and new.damages_refused < old.damages_refused


def is_less_named(old: _Counted, new: _Counted) -> bool:
    """True if the delegates' debug handles name fewer of the same operators: profiles and traces lose them."""
    return old.delegated_nodes == new.delegated_nodes and new.named_nodes < old.named_nodes


@dataclass(frozen=True)
class Change:
    """A case, or a fact of the backend's description, that changed.

    `ratio` is new / old: of times, for "larger" and "smaller" of bytes, for "more_work" and "less_work" of operators.
    """

    group: Group
    case: str
    old: str = ""
    new: str = ""
    detail: str = ""
    ratio: float | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        values = {"case": self.case, "old": self.old or None, "new": self.new or None, "detail": self.detail}
        return values if self.ratio is None else values | {"ratio": self.ratio}


@dataclass(frozen=True)
class Difference:
    """All changes, and differences that make the two runs hard to compare."""

    backend: str
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]
    #: (name, old, new) of packages and facts of machine and device that differ.
    circumstances: tuple[tuple[str, str, str], ...]
    latency_threshold: float
    #: Number of cases in both runs.
    compared: int

    @property
    def is_regression(self) -> bool:
        """True if there are new faults, or something is no longer delegated. Times are reported, but do not count."""
        return any(change.group in ("faults", "lost") for change in self.changes)

    @property
    def is_slower(self) -> bool:
        """True if a case takes longer than the threshold allows."""
        return bool(self.of("slower"))

    def of(self, group: Group) -> tuple[Change, ...]:
        """The changes of a group."""
        return tuple(change for change in self.changes if change.group == group)

    @property
    def headline(self) -> str:
        """The result in a sentence."""
        counts = [f"{title.lower()}: {len(self.of(group))}" for group, title in _TITLES.items() if self.of(group)]
        result = "Regression" if self.is_regression else "No regression"
        return f"{result} in {views.cases(self.compared)} of both runs" + (f" ({'; '.join(counts)})" if counts else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {
            "format": 1,
            "backend": self.backend,
            "regression": self.is_regression,
            "slower": self.is_slower,
            "compared": self.compared,
            "latency_threshold": self.latency_threshold,
            "warnings": list(self.warnings),
            "circumstances": [{"name": name, "old": old, "new": new} for name, old, new in self.circumstances],
            "changes": {group: [change.to_json() for change in self.of(group)] for group in _TITLES},
        }

    def to_markdown(self) -> str:
        """For a comment on a change."""
        parts = [f"## Conformance of {cell(self.backend)}: what changed", f"**{self.headline}.**"]
        parts += [f"> Warning: {cell(warning)}" for warning in self.warnings]
        if self.circumstances:
            parts.append(_markdown_table(("changed", "old", "new"), (map(cell, row) for row in self.circumstances)))
        for group, title in _TITLES.items():
            changes = self.of(group)
            if changes:
                rows = ((code(c.case), cell(c.old), cell(c.new), cell(c.detail)) for c in changes[:_LINES])
                parts.append(f"### {title}: {len(changes)}")
                parts.append(_markdown_table(("case", "old", "new", ""), rows))
                if len(changes) > _LINES:
                    parts.append(f"… and {len(changes) - _LINES} more.")
        return "\n\n".join(parts) + "\n"

    def print(self, console: Console) -> None:
        """To a terminal."""
        for warning in self.warnings:
            console.print(Text.assemble(("warning: ", "yellow"), clean(warning)))
        for name, old, new in self.circumstances:
            console.print(Text(f"{clean(name)}: {clean(old) or 'none'} -> {clean(new) or 'none'}"))
        for group, title in _TITLES.items():
            changes = self.of(group)
            if not changes:
                continue
            table = Table(title=f"{title}: {len(changes)}", title_justify="left")
            for header in ("case", "old", "new", ""):
                table.add_column(header, overflow="fold")
            for change in changes[:_LINES]:
                texts = (change.case, change.old, change.new, change.detail)
                table.add_row(*(Text(clean(text)) for text in texts))
            console.print(table)
            if len(changes) > _LINES:
                console.print(f"… and {len(changes) - _LINES} more")
        console.print(Text(f"{self.headline}.", "bold red" if self.is_regression else "bold green"))


def diff(old: Run, new: Run, *, latency_threshold: float = LATENCY_THRESHOLD) -> Difference:
    """Compare two runs of one backend, case by case. `latency_threshold` is a ratio above 1."""
    before = {result.case: result for result in old.results}
    after = {result.case: result for result in new.results}
    same_examples = (old.seed, old.profile, _suite(old)) == (new.seed, new.profile, _suite(new))
    both = [name for name in after if name in before]
    changes: list[Change] = []
    pace = _pace([(before[name], after[name]) for name in both])
    one_ran = old.backend.available != new.backend.available
    for name in both:
        if one_ran and _is_unseen(before[name]) != _is_unseen(after[name]):
            continue  # there is a warning
        old_case, new_case = before[name], after[name]
        changes += _changes(old_case, new_case, 0.0 if same_examples else _SHARE)
        timed = list(_latency(old_case, new_case, latency_threshold))
        changes += timed
        if same_examples:
            changes += [] if timed else _cpu(old_case, new_case, latency_threshold, pace)
            changes += (*_size(old_case, new_case), *_work(old_case, new_case))
            changes += (*_care(old_case, new_case), *_names(old_case, new_case))
            changes += (*_reasons(old_case, new_case), *_insides(old_case, new_case))
    for name, result in before.items():
        if name not in after:
            changes.append(Change("only_old", name, _shown(result)))
    for name, result in after.items():
        if name not in before:
            # A fault in a case that the old run did not have is a new fault: it was not seen before.
            group: Group = "faults" if result.is_fault else "only_new"
            changes.append(Change(group, name, "", _shown(result), _said(result)))
    changes += _said_of_itself(old, new)
    return Difference(
        new.backend.name,
        tuple(sorted(changes, key=lambda change: (list(_TITLES).index(change.group), change.case))),
        tuple(_warnings(old, new)),
        tuple(_circumstances(old, new)),
        latency_threshold,
        len(both),
    )


def _changes(old: CaseResult, new: CaseResult, least_share: float) -> Iterable[Change]:
    def change(group: Group, detail: str = "") -> Change:
        return Change(group, new.case, _shown(old), _shown(new), detail)

    fresh_core = _core_kinds(new) - _core_kinds(old)
    if fresh_core:
        yield change("core", "; ".join(sorted(fresh_core)))
    fresh = _faults(new) - _faults(old)
    if new.is_fault and (fresh or not old.is_fault):
        yield change("faults", _said(new))
        return
    if old.is_fault and not new.verdict.is_fault:
        yield change("fixed")
        return
    lost = is_lost(old.verdict, new.verdict)
    if lost or is_lost(new.verdict, old.verdict):
        yield change("lost" if lost else "gained", ("; ".join(new.reasons[:2]) or new.detail) if lost else "")
        return
    if not least_share and _is_less_seen(old, new):
        unseen = f"{old.counts.get(Verdict.UNAVAILABLE, 0)} -> {new.counts[Verdict.UNAVAILABLE]}"
        yield change("lost", f"{unseen} examples were compiled and could not be run")
        return
    shares = views.share([old]), views.share([new])
    if old.verdict in _RANK and shares[0] is not None and shares[1] is not None:
        moved = shares[1] - shares[0]
        if abs(moved) > max(least_share, 1e-9):
            told = f"{views.percent(shares[0])} -> {views.percent(shares[1])} of the examples fully delegated"
            yield change("lost" if moved < 0 else "gained", told)
            return
    if not least_share and (is_fewer(old, new) or is_fewer(new, old)):
        told = f"{old.delegated_nodes} -> {new.delegated_nodes} operator calls delegated"
        yield change("lost" if is_fewer(old, new) else "gained", told)
        return
    if old.verdict is not new.verdict or (new.verdict.is_fault and (old.expected is None) != (new.expected is None)):
        yield change("verdicts", new.detail)


def _is_less_seen(old: CaseResult, new: CaseResult) -> bool:
    """True if examples that ran are among those that were compiled and could not be run.

    Their delegates may have more operators than before: operators that the runtime cannot run are no gain.
    """
    ran = [sum(result.counts.get(verdict, 0) for verdict in _RAN) for result in (old, new)]
    unseen = [result.counts.get(Verdict.UNAVAILABLE, 0) for result in (old, new)]
    return ran[1] < ran[0] and unseen[1] > unseen[0]


def _is_unseen(result: CaseResult) -> bool:
    """True if no result of the backend was seen."""
    return result.verdict in (Verdict.UNAVAILABLE, Verdict.NOT_APPLICABLE)


def _latency(old: CaseResult, new: CaseResult, threshold: float) -> Iterable[Change]:
    before, after = views.latencies([old]), views.latencies([new])
    if not before or not after:
        return
    own = after[0].backend / before[0].backend
    against_eager = after[0].ratio / before[0].ratio
    slower, faster = min(own, against_eager) > threshold, max(own, against_eager) < 1 / threshold
    if slower or faster:
        told = f"{own:.2f} times the time ({against_eager:.2f} times, against eager)"
        times = views.duration(before[0].backend), views.duration(after[0].backend)
        yield Change("slower" if slower else "faster", new.case, *times, told, own)


def _pace(pairs: Sequence[tuple[CaseResult, CaseResult]]) -> float:
    """The usual ratio of new to old CPU seconds of a case: of a slower machine, or a slower torch, above 1."""
    ratios = [new.cpu / old.cpu for old, new in pairs if old.cpu and new.cpu]
    return statistics.median(ratios) if ratios else 1.0


def _cpu(old: CaseResult, new: CaseResult, threshold: float, pace: float) -> Iterable[Change]:
    """Other CPU time for the same examples, compared with other cases of the two runs, too."""
    if not old.cpu or not new.cpu or abs(new.cpu - old.cpu) < CPU_FLOOR:
        return
    own, beside = new.cpu / old.cpu, new.cpu / old.cpu / pace
    slower, faster = min(own, beside) > threshold, max(own, beside) < 1 / threshold
    if slower or faster:
        told = f"{own:.2f} times the CPU time for the same examples ({beside:.2f} times, beside the other cases)"
        yield Change("slower" if slower else "faster", new.case, f"{old.cpu:.2f} s", f"{new.cpu:.2f} s", told, own)


def _size(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """Delegates of the same operators with more, or fewer, bytes."""
    before, after = old.delegate_bytes, new.delegate_bytes
    if is_larger(old, new) or is_larger(new, old):
        group: Group = "larger" if after > before else "smaller"
        told = f"{after / before:.2f} times the bytes for the same operators"
        yield Change(group, new.case, f"{before:,} bytes", f"{after:,} bytes", told, after / before)


def _work(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """Delegates of the same operators that have more operators themselves, or fewer."""
    before, after = old.delegate_operators, new.delegate_operators
    if is_more_work(old, new) or is_more_work(new, old):
        kind: Group = "more_work" if after > before else "less_work"
        told = f"{before:,} -> {after:,} operators in delegates of the same {new.delegated_nodes:,} operator calls"
        yield Change(kind, new.case, f"{before:,} operators", f"{after:,} operators", told, after / before)
    apart: tuple[tuple[Group, list[str], str], ...] = (
        ("more_work", taken_apart(old, new), "now"),
        ("less_work", taken_apart(new, old), "before"),
    )
    for group, operators, side in apart:
        if operators:
            calls = f"{old.delegated_nodes:,} calls", f"{new.delegated_nodes:,} calls"
            yield Change(group, new.case, *calls, f"{', '.join(operators)}: taken apart {side}")


def _care(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """Fewer, or more, damages of delegates of the same size that are refused."""
    before, after = old.damages_refused, new.damages_refused
    if is_less_careful(old, new) or is_less_careful(new, old):
        group: Group = "less_careful" if after < before else "more_careful"
        yield Change(group, new.case, f"{before:,} refused", f"{after:,} refused")


def _names(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """Fewer, or more, of the same operators that debug handles name."""
    before, after = old.named_nodes, new.named_nodes
    if is_less_named(old, new) or is_less_named(new, old):
        group: Group = "less_named" if after < before else "more_named"
        yield Change(group, new.case, f"{before:,} named", f"{after:,} named", f"of {new.delegated_nodes:,} operators")


def _reasons(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """The same refusals for reasons in other words."""
    if old.counts == new.counts and old.refused == new.refused and set(old.reasons) != set(new.reasons):
        before, after = (
            next((line for line in these if line not in those), "")
            for these, those in ((old.reasons, new.reasons), (new.reasons, old.reasons))
        )
        yield Change("reasons", new.case, before, after)


def _insides(old: CaseResult, new: CaseResult) -> Iterable[Change]:
    """Other reported operators of a delegate that has the same bytes."""
    found = told_otherwise(old.insides, new.insides)
    if found is not None:
        yield Change("insides", new.case, *found)


def _said_of_itself(old: Run, new: Run) -> Iterable[Change]:
    """Differences between two runs' descriptions of the backend; nothing if a run's suite did not keep them."""
    if old.description is None or new.description is None:
        return
    before, after = (Saying(run.description or {}, run.declarations) for run in (old, new))
    for one in altered(before, after):
        yield Change(one.kind, one.subject, one.old, one.new, one.what)


def _faults(result: CaseResult) -> set[Verdict]:
    return {verdict for verdict in result.counts if verdict.is_fault} if result.is_fault else set()


def _core_kinds(result: CaseResult) -> set[str]:
    return {(fault.core or fault.verdict.value).partition(":")[0] for fault in result.core_faults}


def _shown(result: CaseResult) -> str:
    excused = result.verdict.is_fault and not result.is_fault
    return f"{result.verdict.value} (expected)" if excused else result.verdict.value


def _said(result: CaseResult) -> str:
    return next((first_line(fault.detail) for fault in views.by_gravity(result.faults)), result.detail)


def _suite(run: Run) -> str:
    return run.versions.get("delegatekit-conformance", "")


def _warnings(old: Run, new: Run) -> Iterable[str]:
    facts: dict[str, Callable[[Run], object]] = {
        "the backend": lambda run: run.backend.name,
        "the seed": lambda run: run.seed,
        "the profile": lambda run: run.profile,
        "the suite's version": lambda run: _suite(run) or "unknown",
        "the choice of cases": lambda run: run.selection,
        "the shard": lambda run: f"{run.shard[0]} of {run.shard[1]}" if run.shard else "none",
        "the backend's options": lambda run: dict(run.options),
        "whether the runtime is available": lambda run: run.backend.available,
    }
    for name, of in facts.items():
        if of(old) != of(new):
            yield f"{name} differs ({of(old)} and {of(new)}): changes may come from that"
    yield from judges.lost(old, new)
    if (old.machine.get("processor"), dict(old.device)) != (new.machine.get("processor"), dict(new.device)):
        yield "the machines or devices differ: times may have changed with them"


def _circumstances(old: Run, new: Run) -> Iterable[tuple[str, str, str]]:
    before, after = (
        {
            "backend": f"{run.backend.distribution} {run.backend.version}",
            "SHA-256 of its wheel": run.backend.installation.sha256,
            "compiler": run.backend.compiler,
            "known faults": run.expectations,
        }
        for run in (old, new)
    )
    for run, facts in ((old, before), (new, after)):
        for group in (run.versions, run.device, run.machine):
            facts.update(group)
    for run, facts in ((old, before), (new, after)):
        seen = {f"examples seen by {judge.name}": f"{judge.seen} of {judge.examples}" for judge in judges.judges(run)}
        facts.update(seen | ({"examples": judges.parts(run.results).words} if seen else {}))
        facts.update({"rows": rows.summary(run)} if seen else {})
    same = {result.case for result in old.results} & {result.case for result in new.results}
    spent = [sum(result.cpu for result in run.results if result.case in same) for run in (old, new)]
    if min(spent) and max(spent) > _PACE * min(spent):
        for facts, seconds in zip((before, after), spent, strict=True):
            facts["CPU time of the cases of both"] = f"{seconds:.1f} s"
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield name, before.get(name, ""), after.get(name, "")


def _markdown_table(headers: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
