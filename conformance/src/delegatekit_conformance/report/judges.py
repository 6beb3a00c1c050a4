"""Number of examples that each judge saw, with reasons; and the meaning of "correct": only the backend's results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..outcome import CaseResult, Verdict
from ..run import Run
from ..stock import OFF
from . import views

#: Verdicts of examples without a result of the backend, and why.
_NO_RESULT: Final = {
    Verdict.FALLBACK: "nothing was delegated",
    Verdict.REFUSED: "lowering refused it",
    Verdict.NOT_EXPORTABLE: "torch.export does not accept it",
    Verdict.NOT_APPLICABLE: "does not apply",
    Verdict.UNAVAILABLE: "compiled only: the backend's runtime is not available",
    Verdict.LOWERING_ERROR: "lowering failed",
    Verdict.LOAD_ERROR: "loading failed",
    Verdict.RUN_ERROR: "running failed",
    Verdict.CLAIM: "a claim was not kept",
    Verdict.VIOLATION: "a rule was broken",
    Verdict.CRASH: "the process crashed",
    Verdict.TIMEOUT: "it timed out",
}
#: Verdicts of examples that the backend compiled, all of which `verification` sees.
_COMPILED: Final = frozenset(
    {Verdict.DELEGATED, Verdict.PARTLY, Verdict.UNAVAILABLE, Verdict.MISMATCH, Verdict.STOCK, Verdict.RUN_ERROR}
    | {Verdict.LOAD_ERROR}
)
_WRONG_HERE: Final = "it was wrong in this engine already"


@dataclass(frozen=True)
class Judge:
    """A reference for correctness, and how many of the examples with programs it saw."""

    name: str
    seen: int
    examples: int
    #: (why it did not see the others, how many), the most frequent first.
    unseen: tuple[tuple[str, int], ...] = ()
    #: A warning for readers who assume that it judged; empty if unnecessary.
    warning: str = ""
    #: What it did not look at in the examples that it saw; empty if that is nothing.
    limit: str = ""

    @property
    def words(self) -> str:
        """The judge in a sentence, without its warning."""
        why = "; ".join(f"{count:,}: {reason}" for reason, count in self.unseen)
        limit = f", {self.limit}" if self.limit else ""
        return f"{self.name}: {self.seen:,} of {self.examples:,} examples{limit}" + (f" ({why})" if why else "")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        unseen = dict(self.unseen)
        told = {"warning": self.warning, "limit": self.limit}
        found = {"judge": self.name, "seen": self.seen, "examples": self.examples, "unseen": unseen}
        return found | {key: words for key, words in told.items() if words}


def judges(run: Run) -> tuple[Judge, ...]:
    """The judges of a run: PyTorch eager, the stock ExecuTorch runtime, and the vendor's tool if the backend names one.

    They are asked about programs; rules and damages are judged only by themselves.
    """
    tried = [result for result in run.results if not views.is_rule(result)]
    if not tried:
        return ()
    found = [_eager(tried), _stock(tried)]
    if run.backend.verifier:
        found.append(_vendor(run, tried))
    return tuple(found)


def warnings(run: Run) -> tuple[str, ...]:
    """Results that the judges did not look at although a reader may believe it, in sentences."""
    return tuple(f"{judge.name}: {judge.warning}" for judge in judges(run) if judge.warning)


def lost(old: Run, new: Run) -> Iterable[str]:
    """Judges of the old run that do not judge the new one, in sentences."""
    after = {judge.name: judge for judge in judges(new)}
    for before in judges(old):
        now = after.get(before.name)
        if before.seen and now is not None and not now.seen:
            why = f": {now.unseen[0][0]}" if now.unseen else ""
            yield f"{before.name} saw {before.seen:,} examples of the old run, and none of the new one{why}"


def _eager(results: Sequence[CaseResult]) -> Judge:
    counts = views.counts(results)
    unseen = _without_results(counts)
    seen = sum(counts.values()) - unseen.total()
    warning = ""
    if not seen and counts.keys() & _COMPILED:
        warning = "it saw no result of this backend: nothing that was compiled was run"
    return _judge("PyTorch eager", seen, results, unseen, warning)


def _stock(results: Sequence[CaseResult]) -> Judge:
    seen = views.in_stock(results)
    counts = views.counts(results)
    unseen = _without_results(counts)
    told: Counter[str] = Counter()
    for result in results:
        told.update(result.unjudged)
    unseen += told
    unseen[_WRONG_HERE] = max(0, counts.get(Verdict.MISMATCH, 0))
    left = sum(counts.values()) - seen - unseen.total()
    unseen["the case does not ask it"] += max(0, left)
    warning = ""
    if told.keys() - {OFF} and not seen:
        warning = f"it judged nothing: {told.most_common(1)[0][0]}"
    hosted = sum(result.hosted for result in results)
    limit = f"{hosted:,} of them with the plugin's own runtime for the delegates" if hosted else ""
    return replace(_judge("stock ExecuTorch runtime", seen, results, unseen, warning), limit=limit)


def _vendor(run: Run, results: Sequence[CaseResult]) -> Judge:
    counts = views.counts(results)
    compiled = sum(count for verdict, count in counts.items() if verdict in _COMPILED)
    backend = run.backend
    if not backend.verified:
        unseen = Counter({backend.unverified or "switched off": sum(counts.values())})
        warning = f"it judged nothing: {backend.unverified}" if compiled else ""
        return _judge(backend.verifier, 0, results, unseen, warning)
    unseen = Counter({"nothing was compiled": sum(counts.values()) - compiled})
    return _judge(backend.verifier, compiled, results, unseen)


def _without_results(counts: Mapping[Verdict, int]) -> Counter[str]:
    """Reasons why examples have no result of the backend to judge: reason -> examples."""
    return Counter({words: counts[verdict] for verdict, words in _NO_RESULT.items() if verdict in counts})


def _judge(name: str, seen: int, results: Sequence[CaseResult], unseen: Counter[str], warning: str = "") -> Judge:
    examples = sum(result.examples for result in results)
    return Judge(name, seen, examples, tuple((why, count) for why, count in unseen.most_common() if count), warning)


# What "correct" counts


@dataclass(frozen=True)
class Parts:
    """Examples of programs: right on the backend, right without it, and the others."""

    right: int
    partly: int
    #: Correct, but nothing was delegated: no evidence about the backend.
    without: int
    others: int

    @property
    def words(self) -> str:
        """In one sentence, the most important first."""
        return (
            f"{self.right:,} examples right on the backend, {self.partly:,} partly on it, {self.without:,} with "
            f"nothing delegated, which say nothing about the backend, {self.others:,} others"
        )


def parts(results: Iterable[CaseResult]) -> Parts:
    """The outcomes of the examples of programs, counted."""
    counts = views.counts(result for result in results if not views.is_rule(result))
    right, partly = counts.pop(Verdict.DELEGATED, 0), counts.pop(Verdict.PARTLY, 0)
    without = counts.pop(Verdict.FALLBACK, 0)
    return Parts(right, partly, without, sum(counts.values()))
