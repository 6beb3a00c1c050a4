"""Known faults of a backend: the file in which its vendor lists them, with reasons.

The file is `conformance.toml` in the package of the plugin's module, so that it travels with the wheel; a file
that is named on the command line is used instead:

    [[expected]]
    case = "operators/aten.pow.*/float16"  # names of cases, as fnmatch takes them; a pattern or a list
    verdict = ["wrong result"]             # optional: only these verdicts; a list or one
    detail = "relative error"              # optional: a regular expression that the fault's detail must contain
    reason = "pow goes through exp and log in half precision"
    issue = "https://example.org/issues/12"  # optional
    sometimes = true  # optional: only some examples show it, so a run without it is not an unexpected pass
    options = { fp16 = true }  # optional: only runs in which the backend's options have these values

A case is excused if an entry fits each of its faults, or if the backend's own support table declares the special values
that explain it (`cases/special_values.py`): what a row says need not be said here again. A case that an entry names and
that has no fault is an unexpected pass, unless the entry says `sometimes`: it is reported, and with `strict = true` at
the top of the file it fails, too. A reason that begins with TODO, as those of drafts do, is refused.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from delegatekit.files import open_file
from delegatekit_api import BackendOptions, FormatError

from . import vendor
from .errors import InputError
from .outcome import CaseResult, Outcome, Verdict

#: The file's name in the plugin's package.
FILE = "conformance.toml"
#: What stands before the words of a support table in `CaseResult.expected`.
DECLARED = "declared by the support table: "
#: Placeholder for a missing reason.
TODO = "TODO"
_KEYS = ("case", "verdict", "detail", "reason", "issue", "sometimes", "options")
#: Without any trial, a fault cannot appear.
_UNTRIED = (Verdict.UNAVAILABLE, Verdict.NOT_APPLICABLE, Verdict.NOT_EXPORTABLE)


@dataclass(frozen=True)
class Expectation:
    """One entry: faults that are known, and why."""

    cases: tuple[str, ...]
    reason: str
    #: None fits every verdict that is a fault.
    verdicts: frozenset[Verdict] | None = None
    #: None fits every detail.
    detail: re.Pattern[str] | None = None
    issue: str = ""
    #: True if a case without the fault is not an unexpected pass.
    sometimes: bool = False
    #: Values of the backend's options that a run must have.
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The entry in its file, for messages.
    where: str = ""

    def holds(self, options: BackendOptions) -> bool:
        """True if the entry is for runs with these options. Raises InputError for an unknown option."""
        unknown = next((name for name in self.options if not hasattr(options, name)), None)
        if unknown is not None:
            raise InputError(f"the backend has no option {unknown!r}", where=self.where)
        return all(getattr(options, name) == value for name, value in self.options.items())

    def names(self, case: str) -> bool:
        """True if the entry is for this case."""
        return any(fnmatchcase(case, pattern) for pattern in self.cases)

    def fits(self, case: str, fault: Outcome) -> bool:
        """True if the entry excuses this fault of the case."""
        return (
            self.names(case)
            and (self.verdicts is None or fault.verdict in self.verdicts)
            and (self.detail is None or self.detail.search(fault.detail) is not None)
        )

    def __str__(self) -> str:
        return f"{self.reason} ({self.issue})" if self.issue else self.reason


@dataclass(frozen=True)
class Expectations:
    """All entries of a backend."""

    entries: tuple[Expectation, ...] = ()
    #: True if a case that an entry names must have a fault.
    strict: bool = False
    #: The file's name and SHA-256, for reports: "conformance.toml, SHA-256 ..."; "" without a file.
    origin: str = ""

    def under(self, options: BackendOptions) -> Expectations:
        """The entries for runs with these options. Raises InputError for an unknown option."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry.holds(options)))

    def mark(self, result: CaseResult) -> CaseResult:
        """The result with `expected`, if entries excuse all its faults, or name it although it has none."""
        about = [entry for entry in self.entries if entry.names(result.case)]
        if result.verdict in _UNTRIED:
            return result
        if not result.verdict.is_fault:
            always = [str(entry) for entry in about if not entry.sometimes]
            return replace(result, expected="; ".join(always)) if always else result
        reasons: dict[str, None] = {}
        for fault in result.faults:
            fitting = next((str(entry) for entry in about if entry.fits(result.case, fault)), "")
            said = fitting or (f"{DECLARED}{fault.declared}" if fault.declared else "")
            if not said:
                return result
            reasons[said] = None
        return replace(result, expected="; ".join(reasons))

    def excuses(self, case: str, fault: Outcome) -> bool:
        """True if an entry, or the support table, excuses this fault of the case."""
        return bool(fault.declared) or any(entry.fits(case, fault) for entry in self.entries)

    def unused(self, names: Iterable[str]) -> tuple[str, ...]:
        """The patterns that fit the name of none of these cases."""
        known = list(names)
        patterns = (pattern for entry in self.entries for pattern in entry.cases)
        return tuple(pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in known))


def load(backend: str, path: Path | None = None) -> Expectations:
    """The expectations of a backend: those in the file at `path`, or else in the vendor's, if its wheel has one.

    Raises InputError if the file cannot be read or an entry is wrong; it names file, entry and line.
    """
    if path is not None:
        return parse(_read(path), str(path))
    vendors = vendor.file_of(backend, FILE)
    return Expectations() if vendors is None else parse(*vendors)


def parse(text: str, where: str = FILE) -> Expectations:
    """The expectations in the text of a file, which errors call `where`."""
    values = vendor.values_of(text, where)
    unknown = sorted(values.keys() - {"expected", "strict"})
    if unknown:
        raise InputError(f"has {unknown[0]!r}; there may be [[expected]] entries and `strict`", where=where)
    strict, entries = values.get("strict", False), values.get("expected", [])
    if not isinstance(strict, bool):
        raise InputError(f"strict is {strict!r}, not true or false", where=where)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError("expected must be a list of entries: [[expected]]", where=where)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if re.match(r"\s*\[\[\s*expected\s*\]\]", line)]
    found = []
    for number, entry in enumerate(entries, 1):
        line = f" (line {lines[number - 1]})" if len(lines) == len(entries) else ""
        found.append(_entry(entry, f"{where}: entry {number}{line}"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Expectations(tuple(found), strict, f"{Path(where).name}, SHA-256 {digest}")


def _entry(values: Mapping[str, Any], where: str) -> Expectation:
    unknown = sorted(values.keys() - set(_KEYS))
    if unknown:
        raise InputError(f"{unknown[0]!r} is unknown; there are {', '.join(_KEYS)}", where=where)
    for key in ("reason", "detail", "issue"):
        if not isinstance(values.get(key, ""), str):
            raise InputError(f"{key} is {values[key]!r}, not a string", where=where)
    cases = _texts(values.get("case", []), "case", where)
    for key, value in (("case", "".join(cases)), ("reason", values.get("reason", ""))):
        if not value.strip():
            raise InputError(f"{key} is missing", where=where)
    if values["reason"].lstrip().upper().startswith(TODO):
        raise InputError(
            f"its reason is {values['reason']!r}: it does not say yet why the fault is there",
            where=where,
            hint="find out, and write the reason; or fix the fault and remove the entry",
        )
    verdicts = None
    if "verdict" in values:
        verdicts = frozenset(_verdict(name, where) for name in _texts(values["verdict"], "verdict", where))
    sometimes = values.get("sometimes", False)
    if not isinstance(sometimes, bool):
        raise InputError(f"sometimes is {sometimes!r}, not true or false", where=where)
    try:
        detail = re.compile(values["detail"]) if "detail" in values else None
    except re.error as error:
        raise InputError(f"detail is not a regular expression: {error}", where=where) from error
    options = values.get("options", {})
    if not isinstance(options, dict):
        raise InputError(f"options is {options!r}, not a table of options and values", where=where)
    reason, issue = values["reason"].strip(), values.get("issue", "")
    return Expectation(cases, reason, verdicts, detail, issue, sometimes, options, where)


def _texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    """One string, or a list of strings."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise InputError(f"{key} is {value!r}, not a string or a list of strings", where=where)
    return tuple(found)


def _verdict(name: object, where: str) -> Verdict:
    faults = {verdict.value: verdict for verdict in Verdict if verdict.is_fault}
    if name not in faults:
        raise InputError(f"the verdict {name!r} is not a fault; faults are {', '.join(faults)}", where=where)
    return faults[str(name)]


def _read(path: Path) -> str:
    try:
        with open_file(path) as file:
            return file.read().decode()
    except FormatError as error:
        raise InputError(error.what, where=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
