"""The records that installed wheels carry of themselves, for the list of backends. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from delegatekit.files import open_file
from delegatekit.plugins import discovery
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import LARGEST, decoded, parse_object

from ..installed import Installation, carried, of_plugin
from .age import age_of


@dataclass(frozen=True)
class _Backend:
    """What is read of a record's `backend`."""

    name: str
    distribution: str
    version: str
    installation: Installation


@dataclass(frozen=True)
class _Summary:
    """What is read of a record's `summary`."""

    cases: int
    faults: int
    expected_faults: int


@dataclass(frozen=True)
class _Head:
    """What the list says of a record: its cases are not read."""

    backend: _Backend
    summary: _Summary
    profile: str
    started: str


def lines(names: Sequence[str]) -> dict[str, str]:
    """For each of these backends whose wheel carries a record, a line on it: what it says, its age, whether it fits."""
    found = {}
    for name in names:
        entry_point = discovery.entry_point_of(name)
        path = carried(entry_point)
        if path is not None:
            try:
                head = _read(path)
            except FormatError as error:
                found[name] = f"no record: {error.what}"
                continue
            if head.backend.name == name:  # a package may have several backends; its record is of one
                found[name] = f"{_said(head)}; {_fits(head, of_plugin(entry_point))}"
    return found


def _read(path: Path) -> _Head:
    """The head of a record. Raises FormatError for what is none."""
    with open_file(path) as file:
        values = parse_object(file.read(LARGEST + 1), str(path))
    parts = {"backend": _chosen(_Backend, values.get("backend")), "summary": _chosen(_Summary, values.get("summary"))}
    return decoded(_Head, _chosen(_Head, values | parts), str(path))


def _chosen(kind: type, values: Any) -> Any:
    """The values of an object that a dataclass has fields for."""
    if not isinstance(values, dict):
        return values
    return {field.name: values.get(field.name) for field in fields(kind)}


def _said(head: _Head) -> str:
    summary = head.summary
    expected = f" ({summary.expected_faults:,} expected)" if summary.expected_faults else ""
    faults = "1 fault" if summary.faults == 1 else f"{summary.faults:,} faults"
    return f"{head.profile}: {faults}{expected} in {summary.cases:,} cases, {age_of(head.started) or 'of no date'}"


def _fits(head: _Head, installed: Installation) -> str:
    told = head.backend.installation.sha256
    if not told:
        return "of no wheel"
    if not installed.sha256:
        return f"not compared: {installed.reason}"
    return "of these files" if told == installed.sha256 else "OF OTHER FILES"
