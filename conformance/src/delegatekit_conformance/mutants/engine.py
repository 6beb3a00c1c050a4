"""Runs one mutant: tries it with its examples in a worker of the suite until one of them finds a new fault."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock
from typing import Any

from delegatekit_toolkit.json_text import decoded

from ..cases import all_cases
from ..context import Context
from ..described import altered
from ..expectations import Expectations
from ..insides import told_otherwise
from ..outcome import CaseResult, Verdict
from ..report.difference import is_fewer, is_larger, is_less_careful, is_less_named, is_lost, is_more_work, taken_apart
from ..runner import Limits, Pool, Source
from .choice import beyond
from .chosen import NOT_FOUND, WORDS, Attempt, Spoken, placeholders, speaking_cases, spoken
from .example import numbers_of, short
from .overlay import overlay
from .replay import ordered, replayed
from .sites import Plugin

#: A worker is not replaced while it tries one mutant, and its first death is enough.
_LIMITS = Limits(crashes=1, recycle=1 << 30)
#: CPU seconds of a step by itself; each attempt has its own limit.
_STEP = 1.0
#: Changed lines of a backend's description that are kept, and characters of each.
_LINES = 5
_WORDS = 200
#: A mutant that `conform diff` reports in this many cases, or by the backend's description, is found: with this many
#: examples at most it is tried whether one kills it, too.
_CASES, _FEW = 5, 30
#: Verdicts that a busy machine may cause: they must be right without the change at the same time.
_UNSTEADY = frozenset({Verdict.TIMEOUT, Verdict.VIOLATION, Verdict.CRASH})


@dataclass(frozen=True)
class Trial:
    """The data that a worker needs to try one mutant."""

    #: The mutant's name, and the profile whose examples these are.
    name: str
    profile: str
    backend: str
    file: str
    content: bytes
    attempts: tuple[Attempt, ...]
    #: Number without the time limit: examples that may kill the mutant.
    possible: int
    #: Number of examples that reach the place.
    reaching: int
    #: Files of attempts that can be replayed, by their names: then the attempts are all, in the order in which they are
    #: tried for this many CPU seconds if their replays do not give another.
    replays: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    #: CPU seconds that an earlier profile had for these attempts: those for which they sufficed are left out.
    spent: float = 0.0
    #: Attempts after these.
    further: tuple[Attempt, ...] = ()


@dataclass(frozen=True)
class Found:
    """The result of a trial."""

    name: str
    profile: str
    killed: bool
    #: The case and example that found the fault, its verdict and words.
    case: str = ""
    example: str = ""
    verdict: str = ""
    detail: str = ""
    #: Number of examples that were tried, that may kill it, and that reach the place.
    tried: int = 0
    possible: int = 0
    reaching: int = 0
    #: Cases that `conform diff` lists as no longer delegated, against a run without the change: this is no fault.
    less: tuple[str, ...] = ()
    #: And those that it lists as having larger delegates for the same operators.
    larger: tuple[str, ...] = ()
    #: Seconds of wall time.
    seconds: float = 0.0
    #: Cases that it lists as having more work for the same operators.
    work: tuple[str, ...] = ()
    #: Its list of changes in the backend's description of itself.
    said: tuple[str, ...] = ()
    #: Cases that it lists as refused for other reasons.
    reasons: tuple[str, ...] = ()
    #: Cases of which it lists the same delegates with other reported operators.
    insides: tuple[str, ...] = ()

    @property
    def told(self) -> bool:
        """True if `conform diff` would report it."""
        return bool(self.less or self.larger or self.work or self.said or self.reasons or self.insides)

    @property
    def gave_up(self) -> bool:
        """True if nothing was found, and the time did not suffice for all examples."""
        return not self.killed and not self.told and self.tried < self.possible

    @property
    def untried(self) -> str:
        """The reason why no example was tried."""
        return f"no difference in {self.reaching} that reach it" if self.reaching else "none reaches it"

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = "mutant") -> Found:
        """The inverse of `json_text.to_json`. Raises FormatError, with `where`, for anything else."""
        return decoded(cls, values, where)


def judge(trial: Trial, context: Context, expectations: Expectations, source: Source = all_cases) -> Found:
    """Try a mutant, example by example, up to the first fault that is new.

    An example that finds one at the limit of its time, or by a rule of manners, or that was not tried with these
    sources, must be sound with the plugin as it is right after. Raises RuntimeError if the mutant is not what the
    workers import.
    """
    start = time.perf_counter()
    found = Found(trial.name, trial.profile, killed=False, possible=trial.possible, reaching=trial.reaching)
    told: dict[str, dict[str, None]] = {how: {} for how in _HOW}
    plugin = Plugin.of(trial.backend)
    attempts: Sequence[Attempt] = trial.attempts
    if trial.replays:
        attempts = ordered(attempts, replayed(plugin, {trial.file: trial.content}, trial.replays, context))
        found = replace(found, possible=trial.possible - len(trial.attempts) + len(attempts))
        attempts = beyond(attempts, trial.spent, trial.seconds)
    attempts = (*attempts, *trial.further)
    if attempts:
        with (
            overlay(plugin.folder, {trial.file: trial.content}) as folder,
            _pool(plugin, context, attempts, source, str(folder)) as pool,
        ):
            ask = cache(partial(_otherwise, trial, pool, plugin, context, source))
            for tried, attempt in enumerate(attempts, 1):
                if tried > _FEW and (sum(map(len, told.values())) >= _CASES or ask()):
                    break
                found = replace(found, tried=tried)
                result = expectations.mark(_own(pool.run_case(attempt.name), attempt))
                _check_found(result)
                if result.is_fault and not _unsteady(result, attempt, plugin, context, expectations, source):
                    found = _killed(found, attempt, result)
                    break
                how = _told(attempt, result) if attempt.verdict else ""
                if how and not attempt.sound:
                    now = _unchanged(attempt, plugin, context, expectations, source)
                    how = _told(_counted(attempt, now), result)
                if how:
                    told[how][attempt.case] = None
            if not found.killed:
                found = replace(found, said=ask())
    seconds = round(time.perf_counter() - start, 1)
    cases: dict[str, Any] = {how: tuple(told[how]) for how in _HOW}
    return replace(found, seconds=seconds, **cases)


#: Possible reports of `conform diff` on a case.
_HOW = ("less", "work", "larger", "reasons", "insides")


def _told(before: Attempt, now: CaseResult) -> str:
    """The report of `conform diff` on a result: one of `_HOW`, or nothing."""
    if is_lost(Verdict(before.verdict), now.verdict):
        return "less"
    if is_fewer(before, now) or is_less_careful(before, now) or is_less_named(before, now):
        return "less"
    if is_more_work(before, now) or taken_apart(before, now):
        return "work"
    if is_larger(before, now):
        return "larger"
    same = before.verdict == now.verdict.value and before.delegated_nodes == now.delegated_nodes
    if same and tuple(before.reasons) != numbers_of(now.reasons):
        return "reasons"
    return "insides" if told_otherwise(before.insides, short(now.insides)) else ""


def _counted(attempt: Attempt, result: CaseResult) -> Attempt:
    """The attempt with the present counts of its example."""
    return replace(
        attempt,
        verdict=result.verdict.value,
        delegated_nodes=result.delegated_nodes,
        fallback_calls=result.fallback_calls,
        delegate_bytes=result.delegate_bytes,
        delegate_operators=result.delegate_operators,
        named_nodes=result.named_nodes,
        damages_refused=result.damages_refused,
        taken=tuple(result.taken),
        reasons=numbers_of(result.reasons),
        insides=short(result.insides),
    )


def is_sound(attempts: Sequence[Attempt], context: Context, plugin: Plugin, source: Source = all_cases) -> str:
    """The fault of unchanged examples where mutants are tried, in words; empty if they are sound."""
    with overlay(plugin.folder) as folder, _pool(plugin, context, attempts, source, str(folder)) as pool:
        for attempt in attempts:
            result = pool.run_case(attempt.name)
            if result.verdict.is_fault:
                return f"{attempt.case}: {result.verdict.value}: {result.faults[0].detail}"
    return ""


#: A backend's description without a change, by its dependencies; and a lock for asking.
_SOUND: dict[str, Spoken | None] = {}
_ASKING = Lock()


def _otherwise(trial: Trial, pool: Pool, plugin: Plugin, context: Context, source: Source) -> tuple[str, ...]:
    """The changes of the backend's description of itself against that without the change."""
    sound = _sound(plugin, context, source)
    if sound is None or trial.file not in sound.files:
        return ()  # not a file whose code runs for the description
    now = spoken(pool.run_case(WORDS))
    return () if now is None else tuple(str(one)[:_WORDS] for one in altered(sound.saying, now.saying)[:_LINES])


def _sound(plugin: Plugin, context: Context, source: Source) -> Spoken | None:
    """The backend's description of itself without a change, asked once where mutants are tried."""
    key = repr((plugin, plugin.digest, context))
    with _ASKING:
        if key not in _SOUND:
            with overlay(plugin.folder) as folder, _pool(plugin, context, (), source, str(folder)) as pool:
                _SOUND[key] = spoken(pool.run_case(WORDS))
        return _SOUND[key]


def _pool(plugin: Plugin, context: Context, attempts: Sequence[Attempt], source: Source, folder: str) -> Pool:
    """One worker for these attempts, with the plugin as it is in the folder."""
    given = partial(
        speaking_cases,
        of=source,
        attempts=tuple(attempts),
        first=folder,
        package=plugin.package,
        timeout=context.timeout,
    )
    return Pool(replace(context, timeout=_STEP), limits=_LIMITS, source=given, cases=placeholders(attempts))


def _check_found(result: CaseResult) -> None:
    """Raise RuntimeError if a worker has not found the mutant: then nothing of it was tried."""
    if any(NOT_FOUND in fault.detail for fault in result.faults):
        raise RuntimeError(result.faults[0].detail)


def _own(result: CaseResult, attempt: Attempt) -> CaseResult:
    """The result under the name of the example's case, which expectations know."""
    return replace(result, case=attempt.case)


def _unsteady(
    result: CaseResult,
    attempt: Attempt,
    plugin: Plugin,
    context: Context,
    expectations: Expectations,
    source: Source,
) -> bool:
    """True if the same fault occurs without the change."""
    if attempt.sound and result.verdict not in _UNSTEADY:
        return False
    return _unchanged(attempt, plugin, context, expectations, source).is_fault


def _unchanged(
    attempt: Attempt, plugin: Plugin, context: Context, expectations: Expectations, source: Source
) -> CaseResult:
    """The result of the example without the change."""
    with overlay(plugin.folder) as folder, _pool(plugin, context, (attempt,), source, str(folder)) as pool:
        return expectations.mark(_own(pool.run_case(attempt.name), attempt))


def _killed(found: Found, attempt: Attempt, result: CaseResult) -> Found:
    fault = result.faults[0] if result.faults else None
    return replace(
        found,
        killed=True,
        case=attempt.case,
        example=fault.example if fault else "",
        verdict=result.verdict.value,
        detail=fault.detail.splitlines()[0][:300] if fault and fault.detail else "",
    )
