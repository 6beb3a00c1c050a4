"""A run as JUnit XML: a test case for each case, a test suite for each room."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from delegatekit.files import write_text

from ..outcome import CaseResult, Outcome, Verdict
from ..run import Run
from . import judges, rows, views
from .text import clean, first_line

#: Nothing of the backend was tried: such cases are "skipped", with the reason.
_SKIPPED = frozenset(
    {Verdict.FALLBACK, Verdict.REFUSED, Verdict.UNAVAILABLE, Verdict.NOT_EXPORTABLE, Verdict.NOT_APPLICABLE}
)


def junit(run: Run) -> str:
    """The XML document.

    Faults are failures; expected faults and cases in which the backend did not take part are skipped.
    """
    root = ElementTree.Element("testsuites", name=clean(f"delegatekit conformance of {run.backend.name}"))
    for number, (room, results) in enumerate(views.rooms(run.results).items()):
        suite = ElementTree.SubElement(root, "testsuite", name=clean(f"{run.backend.name}.{room}"), id=str(number))
        if run.started:
            suite.set("timestamp", run.started.rstrip("Z"))  # the format has no time zone
        properties = ElementTree.SubElement(suite, "properties")
        for name, value in _properties(run).items():
            ElementTree.SubElement(properties, "property", name=clean(name), value=clean(value))
        for result in results:
            _case(suite, run, room, result)
        _count(suite, results)
    _count(root, run.results)
    ElementTree.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, "unicode") + "\n"


def write_junit(path: Path, run: Run) -> None:
    """Write the XML document to a file."""
    write_text(path, junit(run))


def _properties(run: Run) -> dict[str, str]:
    facts = {"seed": str(run.seed), "profile": run.profile}
    facts |= {f"version.{name}": version for name, version in run.versions.items()}
    facts |= {f"device.{name}": value for name, value in run.device.items()}
    for judge in judges.judges(run):
        facts[f"judge.{judge.name}"] = judge.words.partition(": ")[2] + (f"; {judge.warning}" if judge.warning else "")
    if judges.judges(run):
        facts["examples"], facts["rows"] = judges.parts(run.results).words, rows.summary(run)
    return facts


def _case(suite: ElementTree.Element, run: Run, room: str, result: CaseResult) -> None:
    name = result.case.removeprefix(f"{room}/")
    case = ElementTree.SubElement(
        suite, "testcase", classname=clean(f"{run.backend.name}.{room}"), name=clean(name), time=f"{result.seconds:.3f}"
    )
    if result.is_fault:
        faults = views.by_gravity(result.faults)
        said = first_line(faults[0].detail) if faults else ""
        message = f"{result.verdict.value}: {said}" if said else result.verdict.value
        failure = ElementTree.SubElement(case, "failure", type=result.verdict.value, message=message)
        failure.text = clean("\n\n".join(_words(fault) for fault in faults))
    elif _is_skipped(result):
        ElementTree.SubElement(case, "skipped", message=first_line(_why_skipped(result), 400))
    counts = ", ".join(f"{count} {verdict.value}" for verdict, count in result.counts.items())
    lines = [counts, *(f"refused: {reason}" for reason in result.reasons)]
    lines += [f"core: {fault.core or fault.detail}" for fault in result.core_faults]
    if views.is_expected_pass(result):
        lines.append(f"unexpected pass: {result.expected}")
    ElementTree.SubElement(case, "system-out").text = clean("\n".join(filter(None, lines)))


def _is_skipped(result: CaseResult) -> bool:
    return not result.is_fault and (result.verdict in _SKIPPED or result.verdict.is_fault)


def _why_skipped(result: CaseResult) -> str:
    if result.verdict.is_fault:
        return f"expected {result.verdict.value}: {result.expected}"
    if not result.counts and result.core_faults:
        return f"fault of core: {result.core_faults[0].core or result.core_faults[0].detail}"
    why = result.detail or next(iter(result.reasons), "")
    return f"{result.verdict.value}: {why}" if why else result.verdict.value


def _words(fault: Outcome) -> str:
    parts = [f"{fault.verdict.value}: {fault.detail}", fault.example and f"example: {fault.example}", fault.snippet]
    return "\n".join(filter(None, parts))


def _count(element: ElementTree.Element, results: Iterable[CaseResult]) -> None:
    results = list(results)
    element.set("tests", str(len(results)))
    element.set("failures", str(sum(result.is_fault for result in results)))
    element.set("errors", "0")
    element.set("skipped", str(sum(map(_is_skipped, results))))
    element.set("time", f"{sum(result.seconds for result in results):.3f}")
