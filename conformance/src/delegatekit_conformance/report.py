"""Shows outcomes: a table for people, JSON for machines."""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from delegatekit.discovery import LoadedBackend

from .verdicts import Outcome, Verdict

#: Version of the JSON document's layout.
FORMAT = 1
_VERSIONS = ("delegatekit", "delegatekit-api", "delegatekit-conformance", "torch", "executorch", "numpy")


def print_report(console: Console, backend: LoadedBackend, outcomes: Sequence[Outcome], seconds: float) -> None:
    """A row for each case, the sum of verdicts, and the wall time of the run."""
    title = escape(f"conformance of {backend.name} ({backend.distribution} {backend.version})")
    table = Table(title=title)
    for header in ("case", "verdict", "delegated", "error / allowed", "detail"):
        table.add_column(header, overflow="fold")  # names and reasons are shown whole, however narrow the screen
    for outcome in outcomes:
        total = outcome.delegated_nodes + outcome.fallback_calls
        share = f"{outcome.delegated_nodes} of {total}" if total else ""
        size = f"{outcome.error:.1e} / {outcome.tolerance:.1e}" if outcome.error is not None else ""
        detail = "; ".join(outcome.refusals) or outcome.detail if not outcome.verdict.is_fault else outcome.detail
        verdict = f"[{_colour(outcome.verdict)}]{outcome.verdict.value}[/]"
        table.add_row(escape(outcome.case), verdict, share, size, escape(detail))
    console.print(table)
    counts = Counter(outcome.verdict.value for outcome in outcomes)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    nodes, calls = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("delegated_nodes", "fallback_calls")
    )
    console.print(f"{len(outcomes)} cases in {seconds:.1f} s: {summary}", highlight=False)
    console.print(f"{nodes} of {nodes + calls} operators delegated; {_faults(outcomes)} faults", highlight=False)


def write_json(path: Path, backend: LoadedBackend, outcomes: Sequence[Outcome], seconds: float) -> None:
    """The outcomes with the versions of everything that took part."""
    text = json.dumps(as_json(backend, outcomes, seconds), indent=1, allow_nan=False)
    path.write_text(text + "\n", "utf-8")


def as_json(backend: LoadedBackend, outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    """The JSON document of a run; infinite errors become null, for which JSON has no number."""
    return {
        "format": FORMAT,
        "backend": {
            "name": backend.name,
            "distribution": backend.distribution,
            "version": backend.version,
            "api_version": backend.info.api_version,
            "compute_precision": backend.description.compute_precision,
            "runtime": asdict(backend.runtime_availability()),
        },
        "versions": _versions(backend.distribution),
        "machine": {"platform": platform.platform(), "python": platform.python_version()},
        "seconds": seconds,
        "faults": _faults(outcomes),
        "verdicts": dict(Counter(outcome.verdict.value for outcome in outcomes)),
        "cases": [_case(outcome) for outcome in outcomes],
    }


def _case(outcome: Outcome) -> dict[str, Any]:
    values = outcome.to_json()
    if values["error"] == float("inf"):
        values["error"] = None
    return values


def _faults(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.verdict.is_fault for outcome in outcomes)


def _colour(verdict: Verdict) -> str:
    if verdict.is_fault:
        return "red"
    return "green" if verdict is Verdict.DELEGATED else "yellow"


def _versions(distribution: str) -> dict[str, str]:
    """Versions of the suite, of the backend, and of what the backend requires (its compiler among them)."""
    versions: dict[str, str] = {}
    for name in (*_VERSIONS, distribution, *_requirements(distribution)):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _requirements(distribution: str) -> list[str]:
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return []
    return [match[0] for line in lines if (match := re.match(r"[\w.-]+", line))]
