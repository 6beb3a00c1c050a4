"""Shows outcomes: a table for people, JSON for machines."""

from __future__ import annotations

import json
import platform
from collections import Counter
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .verdicts import Outcome, Verdict

_VERSIONS = ("delegatekit", "delegatekit-api", "delegatekit-conformance", "torch", "executorch")


def print_report(console: Console, backend: str, outcomes: Sequence[Outcome]) -> None:
    """A row for each case and the sum of verdicts."""
    table = Table("case", "verdict", "delegated", "error / allowed", "detail", title=f"conformance of {backend}")
    for outcome in outcomes:
        total = outcome.delegated_nodes + outcome.fallback_calls
        share = f"{outcome.delegated_nodes} of {total}" if total else ""
        size = f"{outcome.error:.1e} / {outcome.tolerance:.1e}" if outcome.error is not None else ""
        colour = (
            "red" if outcome.verdict.is_fault else "yellow" if outcome.verdict is not Verdict.DELEGATED else "green"
        )
        detail = outcome.detail or "; ".join(outcome.refusals)
        table.add_row(outcome.case, f"[{colour}]{outcome.verdict.value}[/]", share, size, escape(detail))
    console.print(table)
    counts = Counter(outcome.verdict.value for outcome in outcomes)
    console.print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))


def write_json(path: Path, backend: str, outcomes: Sequence[Outcome]) -> None:
    """The outcomes with the versions of everything that took part."""
    path.write_text(json.dumps(as_json(backend, outcomes), indent=1) + "\n", "utf-8")


def as_json(backend: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON document of a run."""
    from delegatekit import discovery

    info = discovery.get_backend(backend).info
    return {
        "backend": {"name": backend, "distribution": info.distribution, "version": info.version},
        "versions": {name: version for name in _VERSIONS if (version := _version(name)) is not None},
        "machine": {"platform": platform.platform(), "python": platform.python_version()},
        "faults": sum(outcome.verdict.is_fault for outcome in outcomes),
        "cases": [outcome.to_json() for outcome in outcomes],
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
