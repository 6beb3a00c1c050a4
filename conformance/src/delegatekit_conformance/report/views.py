"""The data that reports show, computed from results alone: rooms, the matrix of operators, reasons, latencies."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..outcome import CaseResult, Outcome, Verdict

#: The order of dtype columns; others follow by name.
_DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
#: The order of rooms; others follow by name.
_ROOMS = (
    "contract",
    "operators",
    "extremes",
    "patterns",
    "quantized",
    "dynamic",
    "state",
    "graphs",
    "models",
    "robustness",
)
#: Examples with these verdicts give no information about the backend.
_UNTRIED = frozenset({Verdict.NOT_EXPORTABLE, Verdict.NOT_APPLICABLE})
#: Rooms whose examples are rules and damages, not programs that a backend could take.
_RULES = frozenset({"contract", "robustness"})
#: Examples with these were fully delegated.
_TAKEN = frozenset({Verdict.DELEGATED, Verdict.UNAVAILABLE})


def counts(results: Iterable[CaseResult]) -> dict[Verdict, int]:
    """The number of examples with each verdict, in the order of `Verdict`."""
    total: Counter[Verdict] = Counter()
    for result in results:
        total.update(result.counts)
    return {verdict: total[verdict] for verdict in Verdict if total[verdict]}


def case_counts(results: Iterable[CaseResult]) -> dict[Verdict, int]:
    """The number of cases with each verdict, in the order of `Verdict`."""
    total = Counter(result.verdict for result in results)
    return {verdict: total[verdict] for verdict in Verdict if total[verdict]}


def room(result: CaseResult) -> str:
    """The room of a case."""
    return result.tags.get("room") or result.case.partition("/")[0]


def rooms(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """The cases of each room, in the order of the suite."""
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(room(result), []).append(result)
    return {name: found[name] for name in sorted(found, key=lambda name: _rank(name, _ROOMS))}


def share(results: Iterable[CaseResult]) -> float | None:
    """The share of programs that the backend took whole, from 0 to 1; None if none was tried."""
    total = counts(result for result in results if not is_rule(result))
    tried = sum(count for verdict, count in total.items() if verdict not in _UNTRIED)
    return sum(count for verdict, count in total.items() if verdict in _TAKEN) / tried if tried else None


def is_rule(result: CaseResult) -> bool:
    """True if a case is a rule or tries damage, and not a program that a backend could take."""
    return room(result) in _RULES or Verdict.PASSED in result.counts


def in_stock(results: Iterable[CaseResult]) -> int:
    """The number of examples that ran in the stock ExecuTorch runtime, too."""
    return sum(result.stock for result in results)


def nodes(results: Iterable[CaseResult]) -> tuple[int, int]:
    """Operator calls that the backend ran, and all operator calls."""
    results = list(results)
    delegated = sum(result.delegated_nodes for result in results)
    return delegated, delegated + sum(result.fallback_calls for result in results)


def percent(value: float | None) -> str:
    """A share as text; 0 % and 100 % only where it is exactly that."""
    if value is None:
        return ""
    if 0 < value < 1:
        return f"{min(max(round(100 * value), 1), 99)} %"
    return f"{round(100 * value)} %"


def cases(count: int) -> str:
    """ "1 case", "2 cases"."""
    return f"{count:,} case{'' if count == 1 else 's'}"


def faults(results: Iterable[CaseResult]) -> list[tuple[CaseResult, Outcome]]:
    """The faults that are not expected, the gravest first."""
    order = list(Verdict)
    found = [(result, fault) for result in results if result.is_fault for fault in result.faults]
    return sorted(found, key=lambda pair: order.index(pair[1].verdict), reverse=True)


def expected(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Cases whose faults the vendor's expectations excuse."""
    return [result for result in results if result.verdict.is_fault and not result.is_fault]


def core_faults(results: Iterable[CaseResult]) -> list[tuple[CaseResult, Outcome]]:
    """The faults that occur without the backend."""
    return [(result, fault) for result in results for fault in result.core_faults]


def by_gravity(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The gravest first."""
    order = list(Verdict)
    return sorted(outcomes, key=lambda outcome: order.index(outcome.verdict), reverse=True)


def is_expected_pass(result: CaseResult) -> bool:
    """True if an expectation names the case, and it has no fault."""
    return result.expected is not None and not result.verdict.is_fault


# The matrix


@dataclass(frozen=True)
class Matrix:
    """Operators by dtype; a cell is missing where the operator has no case of that dtype."""

    operators: tuple[str, ...]
    dtypes: tuple[str, ...]
    cells: dict[tuple[str, str], CaseResult]

    def row(self, operator: str) -> list[CaseResult]:
        """The operator's cases in the order of `dtypes`."""
        return [self.cells[operator, dtype] for dtype in self.dtypes if (operator, dtype) in self.cells]


def matrix(results: Iterable[CaseResult]) -> Matrix:
    """The operator cases of a run."""
    cells = {
        (result.tags["operator"], result.tags["dtype"]): result
        for result in results
        if "operator" in result.tags and "dtype" in result.tags
    }
    dtypes = sorted({dtype for _, dtype in cells}, key=lambda name: _rank(name, _DTYPES))
    return Matrix(tuple(sorted({operator for operator, _ in cells})), tuple(dtypes), cells)


def _rank(name: str, order: Sequence[str]) -> tuple[int, str]:
    return (order.index(name), "") if name in order else (len(order), name)


# Reasons


@dataclass(frozen=True)
class Reason:
    """A reason for refusals, with its operators and the number of cases."""

    text: str
    operators: tuple[str, ...]
    cases: int


#: Names that torch.export gives: a name followed by a number carries no information.
_NODE_NAMES = re.compile(r"\b(?:inputs?|args?|[a-z][a-z0-9_]*)_\d+\b")
#: "is int8": the refusals of several dtypes are one reason.
_REFUSED_DTYPE = re.compile(rf" is ({'|'.join(_DTYPES)})\b")

_DTYPE_OF = re.compile(rf"\b[A-Za-z_]\w*(?={_REFUSED_DTYPE.pattern})")


def reasons(results: Iterable[CaseResult]) -> list[Reason]:
    """The reasons of all cases, the most frequent first; equal but for names of nodes and refused dtypes is one."""
    operators: dict[str, set[str]] = {}
    dtypes: dict[str, set[str]] = {}
    seen: Counter[str] = Counter()
    for result in results:
        told = set()
        for line in result.reasons:
            operator, text = split_reason(line)
            form = _REFUSED_DTYPE.sub(" is \0", text, count=1)
            found = _REFUSED_DTYPE.search(text)
            operators.setdefault(form, set()).update(filter(None, [operator]))
            dtypes.setdefault(form, set()).update([found[1]] if found else [])
            told.add(form)
        seen.update(told)
    listed = {
        form: form.replace("\0", _listed(sorted(dtypes[form], key=lambda name: _rank(name, _DTYPES)))) for form in seen
    }
    ordered = sorted(seen, key=lambda form: (-seen[form], listed[form]))
    return [Reason(listed[form], tuple(sorted(operators[form])), seen[form]) for form in ordered]


def _listed(names: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def split_reason(line: str) -> tuple[str, str]:
    """The operator that a reason is of (empty if it names none), and the reason without names of nodes."""
    head, colon, rest = line.partition(": ")
    if not colon or " " in head or "." not in head:
        head, rest = "", line
    return head, _NODE_NAMES.sub("…", _DTYPE_OF.sub("…", rest))


# Latencies


@dataclass(frozen=True)
class Latency:
    """Seconds of one run of a case: the median over its examples, on the backend and eager."""

    case: str
    backend: float
    eager: float

    @property
    def ratio(self) -> float:
        """The backend's time divided by eager's."""
        return self.backend / self.eager


def latencies(results: Iterable[CaseResult]) -> list[Latency]:
    """The cases whose time was measured, the slowest against eager first."""
    found = []
    for result in results:
        pairs = [pair for pair in result.latencies if min(pair) > 0]
        if pairs:
            middle = [statistics.median(times) for times in zip(*pairs, strict=True)]
            found.append(Latency(result.case, middle[0], middle[1]))
    return sorted(found, key=lambda latency: (-latency.ratio, latency.case))


def duration(seconds: float) -> str:
    """A time in words: "3.2 ms", "1 min 12 s"."""
    if seconds >= 60:
        minutes, rest = divmod(round(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError
