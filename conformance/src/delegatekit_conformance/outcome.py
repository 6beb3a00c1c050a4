"""Outcomes of examples and cases: verdicts, outcomes and results, and their form as JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from math import isfinite
from typing import Any

from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import AnyFloat, decoded

from .declaration import Measured, together


class Verdict(Enum):
    """The outcome of one example; of a case, the gravest of its examples."""

    DELEGATED = "correct, delegated"
    PARTLY = "correct, partly delegated"
    FALLBACK = "correct, nothing delegated"
    PASSED = "passed"
    REFUSED = "refused with reason"
    UNAVAILABLE = "compiled, runtime not available"
    NOT_EXPORTABLE = "not exportable"
    NOT_APPLICABLE = "not applicable"
    UNDETECTED = "damage not detected"
    LOWERING_ERROR = "lowering error"
    LOAD_ERROR = "load error"
    RUN_ERROR = "run error"
    MISMATCH = "wrong result"
    CLAIM = "claim not kept"
    STOCK = "wrong in the stock runtime"
    VIOLATION = "contract broken"
    CRASH = "crash"
    TIMEOUT = "timeout"

    @property
    def is_fault(self) -> bool:
        """True if it is a fault, of the backend or of core."""
        return self in _FAULTS

    @property
    def meaning(self) -> str:
        """The meaning of the verdict in a sentence."""
        return _MEANINGS[self]


_FAULTS = frozenset(
    {
        Verdict.LOWERING_ERROR,
        Verdict.LOAD_ERROR,
        Verdict.RUN_ERROR,
        Verdict.MISMATCH,
        Verdict.CLAIM,
        Verdict.STOCK,
        Verdict.VIOLATION,
        Verdict.CRASH,
        Verdict.TIMEOUT,
    }
)

_MEANINGS: Mapping[Verdict, str] = {
    Verdict.DELEGATED: "the backend ran all of it and the result is right",
    Verdict.PARTLY: "the result is right; the runtime's own operators ran some of it",
    Verdict.FALLBACK: "the result is right, but the backend refused all of it; its reasons are listed",
    Verdict.PASSED: "the backend keeps this rule",
    Verdict.REFUSED: "no backend and no runtime kernel supports one of its operators; lowering named it and the reason",
    Verdict.UNAVAILABLE: "the backend's blobs were compiled, but its runtime is not available",
    Verdict.NOT_EXPORTABLE: "torch.export does not accept the example: nothing was tested",
    Verdict.NOT_APPLICABLE: "the case does not concern this backend; the reason is given",
    Verdict.UNDETECTED: "changed bytes of a blob gave other numbers without an error: it has no integrity check",
    Verdict.LOWERING_ERROR: "the compiler failed on what the backend had claimed, or lowering failed without a reason",
    Verdict.LOAD_ERROR: "the backend's runtime refused what its compiler had made",
    Verdict.RUN_ERROR: "the backend's runtime failed to run what its compiler had made",
    Verdict.MISMATCH: "the error is above the tolerance, or shape, dtype, NaN or infinities differ",
    Verdict.CLAIM: "a node that the backend claimed was not delegated, or one that it refused was",
    Verdict.STOCK: "right in this engine, but the stock ExecuTorch runtime refuses the file, fails, or is wrong",
    Verdict.VIOLATION: "the backend breaks a rule of the plugin interface",
    Verdict.CRASH: "the process ended by a signal or without a result",
    Verdict.TIMEOUT: "not finished within the time limit",
}

#: From harmless to grave: a case has the verdict of its example that comes last here.
_GRAVITY = (
    Verdict.NOT_APPLICABLE,
    Verdict.NOT_EXPORTABLE,
    Verdict.UNAVAILABLE,
    Verdict.REFUSED,
    Verdict.FALLBACK,
    Verdict.PARTLY,
    Verdict.DELEGATED,
    Verdict.PASSED,
    Verdict.UNDETECTED,
    Verdict.LOWERING_ERROR,
    Verdict.LOAD_ERROR,
    Verdict.RUN_ERROR,
    Verdict.CLAIM,
    Verdict.VIOLATION,
    Verdict.STOCK,
    Verdict.MISMATCH,
    Verdict.TIMEOUT,
    Verdict.CRASH,
)


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a case with examples of these: a fault if there is one, else the best that was reached."""
    return max(verdicts, key=_GRAVITY.index, default=Verdict.NOT_APPLICABLE)


@dataclass(frozen=True)
class Outcome:
    """One example with its verdict."""

    verdict: Verdict
    detail: str = ""
    #: The example in one line.
    example: str = ""
    #: Who is to blame: "backend", or "core" where the same fails without the backend. Empty without a fault.
    blame: str = ""
    delegates: int = 0
    delegated_nodes: int = 0
    fallback_calls: int = 0
    #: The failure without any backend, on the runtime's own operators: a fault of the core. Empty if there is none.
    core: str = ""
    #: Operators that the backend left, with its reasons.
    refusals: tuple[str, ...] = ()
    #: The largest error, relative to the largest finite reference value; None where nothing could be compared.
    error: AnyFloat | None = None
    tolerance: AnyFloat | None = None
    #: Seconds of wall time of the whole trial; of one run on the backend; and of eager, for the same inputs.
    seconds: float = 0.0
    #: CPU seconds of the trial: of the worker, and of processes that it waited for.
    cpu: float = 0.0
    latency: float | None = None
    eager_latency: float | None = None
    #: A script that shows the fault without the suite. Empty without a fault.
    snippet: str = ""
    #: True if the example is the smallest that was found.
    shrunk: bool = False
    #: Judgement of the stock ExecuTorch runtime on the same file: "right", "wrong", or empty where it was not asked.
    stock: str = ""
    #: True if the plugin's own runtime ran the delegates there, as the stock runtime has none of their ids.
    hosted: bool = False
    #: Why the stock runtime was not asked about a file that the backend had compiled and that is right here.
    unjudged: str = ""
    #: The operators that the backend's delegates compute, by name.
    taken: tuple[str, ...] = ()
    #: Faults of other kinds that the same example showed.
    others: tuple[Outcome, ...] = ()
    #: The backend's declaration on the example's special values (NaN, infinities, very large numbers), where that
    #: explains the fault: without such values the example is right.
    declared: str = ""
    #: Measurements of the backend's declarations.
    measured: tuple[Measured, ...] = ()
    #: Bytes of the delegates: their blobs, and the named data that these read.
    delegate_bytes: int = 0
    #: Number of operators in the delegates, as the backend reports them; 0 where it does not.
    delegate_operators: int = 0
    #: Number of delegated operators that the delegates' debug handles name.
    named_nodes: int = 0
    #: Number of damaged copies of a delegate that its runtime refused.
    damages_refused: int = 0
    #: The reported operators of each delegate, as `insides.line_of` writes it.
    insides: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for two examples that go wrong in the same way: with the same words, ignoring the numbers in them.

        Faults with and without an explaining declaration are of different kinds.
        """
        words = re.sub(r"-?\d[\d.]*(?:e[+-]?\d+)?", "#", self.detail)
        return self.verdict, self.blame, bool(self.core), bool(self.declared), words

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping without the fields that hold their defaults."""
        defaults = asdict(Outcome(self.verdict))
        values = {key: value for key, value in asdict(self).items() if value != defaults[key]}
        if self.others:
            values["others"] = [other.to_json() for other in self.others]
        return values | {"verdict": self.verdict.value}

    @classmethod
    def from_json(cls, values: Any, where: str = "outcome") -> Outcome:
        """The inverse of `to_json`, also after JSON. Raises FormatError, with `where`, for anything else."""
        return decoded(cls, values, where)


def kept_lines(lines: Iterable[str]) -> tuple[str, ...]:
    """The reasons of refusals that a result has, and the operators of its delegates: each once, the first ones."""
    return tuple(dict.fromkeys(lines))[:_LINES]


def worst_of(outcomes: Sequence[Outcome]) -> Outcome:
    """The first outcome that has the gravest verdict of all."""
    worst = gravest(outcome.verdict for outcome in outcomes)
    return next(outcome for outcome in outcomes if outcome.verdict is worst)


def whole_of(parts: Sequence[Outcome], example: str) -> Outcome:
    """The outcome of an example whose parts were tried one by one: the gravest, with the counts of all of them."""
    return replace(
        worst_of(parts),
        example=example,
        delegates=sum(part.delegates for part in parts),
        delegated_nodes=sum(part.delegated_nodes for part in parts),
        fallback_calls=sum(part.fallback_calls for part in parts),
        delegate_bytes=sum(part.delegate_bytes for part in parts),
        delegate_operators=sum(part.delegate_operators for part in parts),
        named_nodes=sum(part.named_nodes for part in parts),
        damages_refused=sum(part.damages_refused for part in parts),
        refusals=tuple(dict.fromkeys(reason for part in parts for reason in part.refusals)),
        taken=tuple(dict.fromkeys(name for part in parts for name in part.taken)),
        insides=tuple(dict.fromkeys(line for part in parts for line in part.insides)),
        seconds=sum(part.seconds for part in parts),
        cpu=sum(part.cpu for part in parts),
    )


@dataclass(frozen=True)
class CaseResult:
    """A case with the outcomes of its examples."""

    case: str
    #: Keys of the report: "room" always, "operator" and "dtype" for operator cases.
    tags: Mapping[str, str]
    counts: Mapping[Verdict, int]
    #: One outcome for each kind of fault, shrunk where possible.
    faults: tuple[Outcome, ...] = ()
    #: The same for faults that occur without the backend, too; these are not faults of the backend, nor in `counts`.
    core_faults: tuple[Outcome, ...] = ()
    #: The backend's reasons for refusals.
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0
    delegated_nodes: int = 0
    fallback_calls: int = 0
    #: The largest error / tolerance of all examples that have one.
    closeness: AnyFloat | None = None
    #: (backend, eager) seconds of one run, median over examples, where they were measured.
    latencies: tuple[tuple[float, float], ...] = ()
    #: The expectation that excuses the faults, or None; see `expectations`.
    expected: str | None = None
    #: Details of examples that passed or do not apply, for cases of one example.
    detail: str = ""
    #: Number of examples that ran in the stock runtime, too.
    stock: int = 0
    #: Number of these of which the plugin's own runtime ran the delegates there.
    hosted: int = 0
    #: Reason why others did not, although compiled and right -> examples.
    unjudged: Mapping[str, int] = field(default_factory=dict)
    #: Operator -> examples in which a delegate of the backend computes it, and in which the backend refuses it.
    taken: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    #: Measurements of the backend's declarations, one for each declaration.
    measured: tuple[Measured, ...] = ()
    #: Bytes of the delegates of all examples.
    delegate_bytes: int = 0
    #: Number of operators in the delegates of all examples, as the backend reports them; 0 where it does not.
    delegate_operators: int = 0
    #: Number of delegated operators that the delegates' debug handles name.
    named_nodes: int = 0
    #: Number of damaged copies of delegates that the backend's runtime refused.
    damages_refused: int = 0
    #: The reported operators of the first delegates, as `insides.line_of` writes it.
    insides: tuple[str, ...] = ()
    #: The boards that tried it, with what each said, where several are at work; first the one whose result this is.
    boards: tuple[str, ...] = ()
    #: CPU seconds of all examples; 0 in documents of older suites.
    cpu: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict of the examples."""
        return gravest(self.counts)

    @property
    def is_fault(self) -> bool:
        """True if the case has a fault that no expectation excuses."""
        return self.verdict.is_fault and self.expected is None

    @property
    def examples(self) -> int:
        """The number of examples tried."""
        return sum(self.counts.values())

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        values = asdict(self)
        return values | {
            "tags": dict(self.tags),
            "verdict": self.verdict.value,
            "counts": {verdict.value: count for verdict, count in self.counts.items()},
            "faults": [outcome.to_json() for outcome in self.faults],
            "core_faults": [outcome.to_json() for outcome in self.core_faults],
        }

    @classmethod
    def from_json(cls, values: Any, where: str = "case") -> CaseResult:
        """The inverse of `to_json`, also after JSON. Raises FormatError, with `where`, for anything else."""
        known = (
            {key: value for key, value in values.items() if key != "verdict"} if isinstance(values, dict) else values
        )
        found = decoded(cls, known, where)
        if "room" not in found.tags:
            raise FormatError("is damaged: tags has no room", where=where)
        if any(count < 0 for count in found.counts.values()):
            raise FormatError("is damaged: counts has a number below 0", where=where)
        return found


#: This many different reasons of refusals are kept for a case, and as many delegates.
_LINES = 12
#: This many different faults are kept for a case, and shrunk.
_KINDS = 8


@dataclass
class Tally:
    """Adds up the outcomes of one case."""

    case: str
    tags: Mapping[str, str]
    counts: Counter[Verdict] = field(default_factory=Counter)
    #: One for each kind: a fault that is expected must not hide another of its verdict.
    faults: dict[tuple[Any, ...], Outcome] = field(default_factory=dict)
    core_faults: dict[str, Outcome] = field(default_factory=dict)
    _reasons: dict[str, None] = field(default_factory=dict)
    _insides: dict[str, None] = field(default_factory=dict)
    _seconds: float = 0.0
    _cpu: float = 0.0
    _nodes: int = 0
    _calls: int = 0
    _bytes: int = 0
    _operators: int = 0
    _named: int = 0
    _damages: int = 0
    _closeness: float | None = None
    _latencies: list[tuple[float, float]] = field(default_factory=list)
    _detail: str = ""
    _stock: int = 0
    _hosted: int = 0
    _unjudged: Counter[str] = field(default_factory=Counter)
    _taken: Counter[str] = field(default_factory=Counter)
    _refused: Counter[str] = field(default_factory=Counter)
    _measured: list[Measured] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome."""
        self._seconds += outcome.seconds
        self._cpu += outcome.cpu
        if outcome.core or outcome.blame == "core":
            kind = (outcome.core or outcome.verdict.value).partition(":")[0]
            if len(self.core_faults) < _KINDS:
                self.core_faults.setdefault(kind, outcome)
            if outcome.blame == "core":
                return
        self.counts[outcome.verdict] += 1
        self._stock += bool(outcome.stock)
        self._hosted += outcome.hosted
        self._unjudged.update(filter(None, [outcome.unjudged]))
        self._taken.update(outcome.taken)
        self._refused.update({line.partition(": ")[0] for line in outcome.refusals})
        self._measured += outcome.measured
        self._nodes += outcome.delegated_nodes
        self._calls += outcome.fallback_calls
        self._bytes += outcome.delegate_bytes
        self._operators += outcome.delegate_operators
        self._named += outcome.named_nodes
        self._damages += outcome.damages_refused
        self._reasons.update(dict.fromkeys(outcome.refusals))
        self._insides.update(dict.fromkeys(outcome.insides))
        if outcome.verdict.is_fault:
            for fault in (outcome, *outcome.others):
                if len(self.faults) < _KINDS:
                    self.faults.setdefault(fault.kind, fault)
        elif outcome.detail:
            self._detail = outcome.detail
        if outcome.error is not None and isfinite(outcome.error) and outcome.tolerance:
            self._closeness = max(self._closeness or 0.0, outcome.error / outcome.tolerance)
        if outcome.latency is not None and outcome.eager_latency is not None:
            self._latencies.append((outcome.latency, outcome.eager_latency))

    def replace_fault(self, before: Outcome, after: Outcome) -> None:
        """Replace an example by a smaller one with the same kind of fault."""
        self.faults = {kind: after if outcome is before else outcome for kind, outcome in self.faults.items()}
        self.core_faults = {kind: after if outcome is before else outcome for kind, outcome in self.core_faults.items()}

    def result(self) -> CaseResult:
        """The sum."""
        return CaseResult(
            self.case,
            dict(self.tags),
            dict(self.counts),
            tuple(self.faults.values()),
            tuple(self.core_faults.values()),
            kept_lines(self._reasons),
            self._seconds,
            self._nodes,
            self._calls,
            self._closeness,
            tuple(self._latencies),
            detail=self._detail,
            stock=self._stock,
            hosted=self._hosted,
            unjudged=dict(self._unjudged),
            taken=dict(self._taken),
            refused=dict(self._refused),
            measured=tuple(together(self._measured).values()),
            delegate_bytes=self._bytes,
            delegate_operators=self._operators,
            named_nodes=self._named,
            damages_refused=self._damages,
            insides=kept_lines(self._insides),
            cpu=self._cpu,
        )
