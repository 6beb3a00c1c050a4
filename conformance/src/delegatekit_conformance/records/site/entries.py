"""Records as a site shows them: who signed each, the backend that each is of, and what is known of a backend now."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from packaging.version import InvalidVersion, Version

from delegatekit_api import FormatError

from ... import report
from ...outcome import CaseResult
from ...report import Difference, views
from ...report.difference import Group
from ...report.page import Card, Sheet
from ...run import Run
from ..checks import Record, fault_of_signature
from ..minisign import PublicKey, signature_of

#: Letters of a digest in names of files.
_DIGEST: Final = 12
_MODELS: Final = ("models", "language-models")


@dataclass(frozen=True)
class Entry:
    """A record in a site. `key` is the one that its signature was verified with; None if it was not."""

    record: Record
    key: PublicKey | None
    #: Its place in the order of all records of the site.
    number: int = 0

    @property
    def run(self) -> Run:
        """The record's run."""
        return self.record.run

    @cached_property
    def name(self) -> str:
        """The name of its files, without suffix: unique, and made of letters that are safe everywhere."""
        digest = hashlib.sha256(self.record.data).hexdigest()[:_DIGEST]
        return f"{slug(self.run.backend.name)}-{slug(self.run.backend.version)}-{digest}"

    @cached_property
    def sheet(self) -> Sheet:
        """Its figures and faults, as the report's page shows them."""
        return Sheet(self.number, self.run.backend.version, self.run)

    @property
    def signer(self) -> str:
        """Who signed it, in words."""
        if self.key is not None:
            return self.key.name or self.key.number
        return f"not verified: key {self.record.signer}" if self.record.signer else "not signed"

    @property
    def amount(self) -> str:
        """How much was tried, in words."""
        run = self.run
        shard = f", shard {run.shard[0]} of {run.shard[1]}" if run.shard else ""
        options = "".join(f", {name}={value}" for name, value in sorted(run.options.items()))
        chosen = "" if run.selection == "*" else f", {run.selection}"
        ended = "" if len(run.results) >= run.chosen else f", ended after {len(run.results):,} of {run.chosen:,}"
        return f"{run.profile}, seed {run.seed}{options}{chosen}{shard}{ended}"

    @property
    def order(self) -> tuple[Version, str, str, str]:
        """The order of history: versions, then times."""
        return (*_version(self.run.backend.version), self.run.started, self.name)


@dataclass(frozen=True)
class Step:
    """A record in the history of a backend, with what it changed from the one before that tried the same."""

    entry: Entry
    change: Difference | None

    def count(self, *groups: Group) -> str:
        """The number of changes in groups; a dash where there is nothing to compare with."""
        if self.change is None:
            return "–"
        return f"{sum(len(self.change.of(group)) for group in groups):,}"


@dataclass(frozen=True)
class Known:
    """What is known of one case of a backend's newest version, and since which version it has had its fault."""

    result: CaseResult
    entry: Entry
    since: str = ""


@dataclass(frozen=True)
class Backend:
    """All records of one backend with the same options, in the order of history."""

    name: str
    distribution: str
    options: str
    page: str
    entries: tuple[Entry, ...]

    @property
    def label(self) -> str:
        """Its name, with its options."""
        return f"{self.name} {self.options}".strip()

    @property
    def newest(self) -> Entry:
        """The record of the newest version that says most: a verified one, of the most cases, the last."""
        return max(self.current, key=lambda entry: (entry.key is not None, len(entry.run.results), entry.run.started))

    @cached_property
    def current(self) -> tuple[Entry, ...]:
        """The records of the newest version."""
        last = self.entries[-1].run.backend.version
        return tuple(entry for entry in self.entries if entry.run.backend.version == last)

    @cached_property
    def known(self) -> dict[str, Known]:
        """The cases of the newest version: each as the last verified record has it, or else the last one."""
        found: dict[str, Known] = {}
        for entry in sorted(self.current, key=lambda entry: (entry.key is not None, entry.order)):
            for result in entry.run.results:
                found[result.case] = Known(result, entry, self._since(result))
        return found

    @property
    def is_verified(self) -> bool:
        """True if every case that is shown is of a verified record."""
        return all(known.entry.key is not None for known in self.known.values())

    @cached_property
    def results(self) -> tuple[CaseResult, ...]:
        """The results of `known`."""
        return tuple(known.result for known in self.known.values())

    @cached_property
    def sheet(self) -> Sheet:
        """The figures of what is known."""
        return Sheet(0, self.label, Run(self.newest.run.backend, self.results))

    @cached_property
    def matrix(self) -> views.Matrix:
        """Operators by dtype."""
        return views.matrix(self.results)

    @cached_property
    def models(self) -> dict[str, Known]:
        """The cases of whole models."""
        return {case: known for case, known in self.known.items() if views.room(known.result) in _MODELS}

    def cards(self, expected: bool) -> list[Card]:
        """The faults that are known of the newest version: expected ones, or the others; the gravest first."""
        found: list[Card] = []
        for entry in self.current:
            cards = entry.sheet.expected if expected else entry.sheet.faults
            found += (
                replace(card, facts=(*card.facts, ("since", self.known[card.case].since)))
                for card in cards
                if self.known[card.case].entry is entry
            )
        return found

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """The history, the oldest first."""
        found: list[Step] = []
        for entry in self.entries:
            before = next((step.entry for step in reversed(found) if _is_alike(step.entry.run, entry.run)), None)
            found.append(Step(entry, None if before is None else report.diff(before.run, entry.run)))
        return tuple(found)

    def _since(self, result: CaseResult) -> str:
        """The first version from which on every record that has the case has a fault there; "" for no fault."""
        if not result.verdict.is_fault:
            return ""
        since = ""
        for entry in self.entries:
            before = entry.sheet.by_name.get(result.case)
            if before is not None:
                since = (since or entry.run.backend.version) if before.verdict.is_fault else ""
        return since


def slug(text: str) -> str:
    """A name as a part of a file's name and of an address.

    >>> slug("../Acme NPU 1.2"), slug("")
    ('acme-npu-1.2', 'x')
    """
    return re.sub(r"[^a-z0-9.]+|[.]{2,}", "-", text.lower())[:40].strip("-.") or "x"


def entries(records: Iterable[Record], keys: Sequence[PublicKey]) -> tuple[Entry, ...]:
    """The entries of records; each content once. Raises FormatError for a signature that does not fit its record."""
    found: dict[bytes, tuple[Record, PublicKey | None]] = {}
    for record in records:
        key, fault = fault_of_signature(record, keys)
        if fault:
            raise FormatError(fault, where=str(signature_of(record.path)), hint="leave this record out")
        there = found.get(record.data)
        if there is None or (there[1] is None and (key or record.signature)):
            found[record.data] = record, key
    ordered = sorted((Entry(record, key) for record, key in found.values()), key=lambda entry: entry.order)
    return tuple(replace(entry, number=number) for number, entry in enumerate(ordered))


def backends(found: Sequence[Entry]) -> tuple[Backend, ...]:
    """The backends of entries, by name."""
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in found:
        run = entry.run
        options = ", ".join(f"{name}={value}" for name, value in sorted(run.options.items()))
        groups.setdefault((run.backend.name, options, run.backend.distribution), []).append(entry)
    pages: set[str] = set()
    listed = []
    for (name, options, distribution), group in sorted(groups.items()):
        page = slug(f"{name}-{options}" if options else name)
        free = next(
            one for one in (page, *(f"{page}-{number}" for number in range(2, len(groups) + 2))) if one not in pages
        )
        pages.add(free)
        listed.append(Backend(name, distribution, options, free, tuple(group)))
    return tuple(listed)


def _is_alike(one: Run, other: Run) -> bool:
    """True if two runs tried the same."""
    facts = [(run.profile, run.seed, run.selection, run.shard) for run in (one, other)]
    return facts[0] == facts[1]


def _version(text: str) -> tuple[Version, str]:
    try:
        return Version(text), text
    except InvalidVersion:
        return Version("0.dev0"), text
