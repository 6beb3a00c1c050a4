"""The measurements of each declaration in a run, in words; and declarations that are ten times too loose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .declaration import ACTS_AS, Declaration, Measured, together
from .expectations import Expectations
from .outcome import CaseResult, Outcome, Verdict

#: A declared number is too loose if it is this many times the measured one, ...
TOO_LOOSE = 10.0
#: ... in at least this many examples.
ENOUGH = 12
#: The rooms whose cases measure what schemes declare.
MEASURE_SCHEMES = frozenset({"quality", "quantized"})
#: The case that reports it.
CASE = "declared/ten-times-too-loose"


def with_measured(declared: Sequence[Declaration], results: Sequence[CaseResult]) -> tuple[Declaration, ...]:
    """The declarations with the measurements of the results."""
    measured = together(item for result in results for item in result.measured)
    return tuple(item.shown(_words(item, measured, results)) for item in declared)


def _words(item: Declaration, measured: Mapping[str, Measured], results: Iterable[CaseResult]) -> str:
    if item.key == "compute_precision":
        closest = [result.closeness for result in results if result.closeness is not None]
        return f"errors up to {max(closest):.2g} of what is allowed, in {len(closest)} cases" if closest else ""
    if item.key.startswith("special_values:"):
        text = item.key.partition(":")[2]
        count = sum(text in fault.declared for result in results for fault in result.faults)
        return f"explains a wrong result in {count} {'case' if count == 1 else 'cases'}"
    if item.key.startswith("expected:"):
        pattern = item.key.partition(":")[2]
        count = sum(pattern in (result.expected or "") for result in results if result.verdict.is_fault)
        return f"excuses {count} {'case' if count == 1 else 'cases'}"
    found = measured.get(item.key)
    if found is None:
        return ""
    return f"{found.value:.3g} at most, in {found.examples} examples"


def of_expectations(known: Expectations) -> tuple[Declaration, ...]:
    """The entries of a file of known faults as declarations, since they loosen checks, too."""
    return tuple(
        Declaration(
            f"expected:{entry.reason}",
            entry.reason,
            entry.where or "expectations",
            f"faults of {', '.join(entry.cases[:2])}{' ...' if len(entry.cases) > 2 else ''} are expected",
        )
        for entry in known.entries
    )


def of_options(results: Iterable[CaseResult]) -> tuple[Declaration, ...]:
    """Values of options that made no difference in anything tried: nothing shows their purpose."""
    found: dict[tuple[str, str], list[str]] = {}
    for result in results:
        if result.detail.startswith(ACTS_AS):
            option, _, value = result.case.partition(":")[2].partition("=")
            found.setdefault((option, result.detail), []).append(value)
    return tuple(
        Declaration(
            f"no_difference:{option}",
            f"{option} = {', '.join(values)}",
            f"option {option}",
            "the value may do nothing, and no case would see it",
            measured=detail,
        )
        for (option, detail), values in found.items()
    )


def too_loose(declared: Sequence[Declaration], results: Sequence[CaseResult]) -> CaseResult | None:
    """A result that blames the backend for declared numbers far above enough measured examples; None if none is."""
    measured = together(item for result in results for item in result.measured)
    faults = []
    for item in declared:
        found = measured.get(item.key)
        if item.value is None or item.breaks or found is None or found.examples < ENOUGH:
            continue
        if item.value > TOO_LOOSE * found.value:
            faults.append(
                f"{item.where} declares {item.what}, and {found.examples} examples show {found.value:.3g} at most: "
                f"what is declared may be {TOO_LOOSE:g} times that"
            )
    if not faults:
        return None
    outcome = Outcome(Verdict.VIOLATION, "; ".join(faults), "declarations beside what was measured", blame="backend")
    return CaseResult(CASE, {"room": "declared"}, {Verdict.VIOLATION: 1}, (outcome,))
