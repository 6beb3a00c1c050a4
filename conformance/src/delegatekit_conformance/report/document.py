"""A run as a JSON document, and back; and one run out of shards. `report.schema.json` describes the document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib import resources
from pathlib import Path
from typing import Any

from delegatekit.files import open_file, write_files, write_text
from delegatekit_api import DelegateKitError, FormatError
from delegatekit_toolkit.json_text import LARGEST, decoded, parse, plain, said, to_json

from ..outcome import CaseResult
from ..run import Run
from . import judges, rows, views

#: Version of the document's layout; `report.schema.json` is of the same.
FORMAT = 2
#: Sums that are checked; others may be added by later suites.
_SUMS = ("cases", "examples", "verdicts", "faults", "expected_faults", "unexpected_passes", "core_faults")
#: Fields of a run that two shards of it share; versions of packages, too.
_SHARED = ("backend", "seed", "profile", "options", "versions")


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the document."""
    text = resources.files(__package__).joinpath("report.schema.json").read_text("utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def as_json(run: Run) -> dict[str, Any]:
    """The document (see `delegatekit_toolkit.json_text` for numbers that JSON does not have)."""
    values = {
        "format": FORMAT,
        **asdict(replace(run, results=())),
        "summary": _summary(run),
        "cases": [result.to_json() for result in run.results],
    }
    del values["results"]
    return plain(values)  # type: ignore[no-any-return]


def _summary(run: Run) -> dict[str, Any]:
    """Sums, for convenience; `from_json` ignores them."""
    delegated, total = views.nodes(run.results)
    parts, reached = judges.parts(run.results), rows.reach(run)
    return {
        "cases": len(run.results),
        "examples": sum(result.examples for result in run.results),
        "verdicts": {verdict.value: count for verdict, count in views.case_counts(run.results).items()},
        "faults": len(run.faults),
        "expected_faults": len(views.expected(run.results)),
        "unexpected_passes": len(run.unexpected_passes),
        "core_faults": len(views.core_faults(run.results)),
        "delegated_nodes": delegated,
        "nodes": total,
        "correct": {"delegated": parts.right, "partly": parts.partly, "nothing_delegated": parts.without},
        "judges": [judge.to_json() for judge in judges.judges(run)],
        "rows": None if reached is None else [row.to_json() for row in reached],
    }


def from_json(values: Any) -> Run:
    """The run of a document. Raises FormatError if it is not one of this version."""
    if not isinstance(values, dict) or "format" not in values:
        raise FormatError("it is not a conformance report: it has no `format`")
    if values["format"] != FORMAT:
        raise FormatError(
            f"its format is {said(values['format'])}, this suite reads {FORMAT}",
            hint="read it with the version of delegatekit-conformance that wrote it",
        )
    fields = {key: value for key, value in values.items() if key not in ("format", "summary", "cases")}
    try:
        run = decoded(Run, fields | {"results": []}, "report")
        cases = decoded(list[Any], values.get("cases"), "cases")
        results = tuple(CaseResult.from_json(case, f"cases[{index}]") for index, case in enumerate(cases))
    except FormatError as error:
        raise FormatError(f"it breaks the schema of conformance reports ({error.where} {error.what})") from error
    return replace(run, results=results)


def write_json(path: Path, run: Run) -> None:
    """Write the document to a file."""
    write_text(path, to_json(as_json(run)) + "\n")


def canonical(values: Any) -> bytes:
    """A document's values as bytes that depend on nothing else: keys in order, no spaces, ASCII, one line."""
    return to_json(values, sort_keys=True, compact=True).encode() + b"\n"


def write_record(path: Path, run: Run) -> None:
    """Write the document to a file as `canonical` makes it, to be signed."""
    write_files({path: lambda file: file.write(canonical(as_json(run)))})


def read_json(path: Path) -> Run:
    """The run that `write_json` or `write_record` wrote. Raises FormatError, also if the file cannot be read."""
    return run_of(values_of(read_bytes(path), str(path)), str(path))


def read_bytes(path: Path) -> bytes:
    """The bytes of a document's file; of one that is too large, more than `values_of` takes. Raises FormatError."""
    with open_file(path) as file:
        return file.read(LARGEST + 1)


def values_of(data: bytes, where: str) -> Any:
    """The values of a document's bytes. Raises FormatError for what is no JSON, or too large or deep for any."""
    return parse(data, where, hint="`delegatekit conform NAME --json FILE` writes a report")


def run_of(values: Any, where: str) -> Run:
    """The run of a document's values. Raises FormatError."""
    try:
        return from_json(values)
    except FormatError as error:
        raise FormatError(error.what, where=where, hint=error.hint) from error


def miscounted(values: Mapping[str, Any], run: Run) -> str:
    """The first sum of a document that is not that of its cases, in words; "" if all are."""
    told = values.get("summary")
    if not isinstance(told, dict):
        return "it has no summary"
    right = plain(_summary(run))
    wrong = next((name for name in _SUMS if told.get(name) != right[name]), None)
    return "" if wrong is None else f"its summary has other {wrong} than its cases: {said(told.get(wrong))}"


def merge(runs: Sequence[Run]) -> Run:
    """One run out of all shards of it, or out of runs that chose different cases.

    `seconds` are added up. Raises DelegateKitError if the runs do not belong together, a shard is missing, or a case
    is in two of them.
    """
    if not runs:
        raise DelegateKitError("there is no run to merge")
    first = runs[0]
    for run in runs[1:]:
        for name in _SHARED:
            if getattr(run, name) != getattr(first, name):
                raise DelegateKitError(
                    f"{name} differs: {getattr(first, name)!r} and {getattr(run, name)!r}",
                    where="merging reports",
                    hint="merge runs of one backend with the same versions, options, seed and profile",
                )
    _check_shards(runs)
    results: dict[str, CaseResult] = {}
    for result in (result for run in runs for result in run.results):
        if result.case in results:
            raise DelegateKitError(f"{result.case} is in two of the runs", where="merging reports")
        results[result.case] = result
    return replace(
        first,
        results=tuple(sorted(results.values(), key=lambda result: result.case)),
        selection=" ".join(dict.fromkeys(run.selection for run in runs)),
        shard=None,
        started=min(run.started for run in runs),
        seconds=sum(run.seconds for run in runs),
        chosen=sum(run.chosen for run in runs),
        machine=_joined(run.machine for run in runs),
        device=_joined(run.device for run in runs),
        # A pattern is unused if no shard has a case of it.
        unused_expectations=tuple(
            pattern for pattern in first.unused_expectations if all(pattern in run.unused_expectations for run in runs)
        ),
    )


def _check_shards(runs: Sequence[Run]) -> None:
    shards = {run.shard for run in runs}
    if shards == {None}:
        return
    totals = {shard[1] if shard else 0 for shard in shards}
    if len(totals) != 1 or 0 in totals:
        raise DelegateKitError("the runs are shards of different divisions", where="merging reports")
    total = totals.pop()
    missing = [str(number) for number in range(1, total + 1) if (number, total) not in shards]
    if missing:
        raise DelegateKitError(f"of {total} shards, these are missing: {', '.join(missing)}", where="merging reports")


def _joined(facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The facts of several machines: differing values are listed."""
    found: dict[str, dict[str, None]] = {}
    for machine in facts:
        for key, value in machine.items():
            found.setdefault(key, {})[value] = None
    return {key: "; ".join(values) for key, values in found.items()}
