"""Drafts of expectations: the faults of a run as entries of a `conformance.toml`, for the vendor to explain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from delegatekit.files import write_text
from delegatekit_toolkit.json_text import to_json

from .errors import InputError
from .expectations import TODO
from .outcome import CaseResult, Outcome
from .run import Run

#: Characters of a fault's words that go into an entry.
_WORDS = 160
_HEAD = """# Faults that the conformance suite found, drafted by `delegatekit conform {name} --write-expectations`.
# Each entry waits for its reason: until it has one, the suite refuses this file.
"""


def drafted(run: Run) -> str:
    """The text of a file with an entry for each kind of fault that no expectation excuses; "" if there is none.

    Cases of one operator, or of one room, with the same verdict and words are one entry.
    """
    found: dict[tuple[str, str, str], list[str]] = {}
    seen: dict[tuple[str, str, str], str] = {}
    for result, fault in _unexplained(run.faults):
        key = (_family(result), fault.verdict.value, _pattern(fault.detail))
        found.setdefault(key, []).append(result.case)
        seen.setdefault(key, fault.detail)
    entries = [_entry(cases, key[1], key[2], seen[key]) for key, cases in found.items()]
    return "\n".join([_HEAD.format(name=run.backend.name), *entries]) if entries else ""


def write_draft(path: Path, run: Run) -> int:
    """Write the draft into a new file; the number of its entries, 0 if the run has no faults and nothing is written.

    Raises InputError if the file is there already: what people wrote into it is not overwritten.
    """
    text = drafted(run)
    if not text:
        return 0
    check_new(path)
    write_text(path, text)
    return text.count("[[expected]]")


def check_new(path: Path) -> None:
    """Raise InputError if the file is there already."""
    if path.exists() or path.is_symlink():
        raise InputError(
            f"{path} exists: a draft does not overwrite it",
            hint="name a new file, and move the entries that you have explained",
        )


def _unexplained(results: Iterable[CaseResult]) -> Iterable[tuple[CaseResult, Outcome]]:
    for result in results:
        for fault in result.faults:
            if not fault.declared:
                yield result, fault


def _family(result: CaseResult) -> str:
    return result.tags.get("operator") or result.case


def _pattern(detail: str) -> str:
    """A regular expression for the words of a fault, whose numbers may be others; only its first line."""
    line = next(iter(detail.splitlines()), "")[:_WORDS]
    parts = re.split(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", line)
    number = r"-?[0-9.]+(e[+-]?[0-9]+)?"
    return "".join(number if index % 2 else _literally(part) for index, part in enumerate(parts))


def _literally(text: str) -> str:
    """A regular expression for a text; characters that TOML cannot represent match anything."""
    return "".join(re.escape(character) if character.isprintable() else "." for character in text)


def _entry(cases: Sequence[str], verdict: str, pattern: str, detail: str) -> str:
    case = _text(cases[0]) if len(cases) == 1 else f"[{', '.join(map(_text, cases))}]"
    lines = ["[[expected]]", f"case = {case}", f"verdict = {_text(verdict)}"]
    if pattern:
        lines.append(f"detail = {_text(pattern)}")
    seen = " ".join(detail.split())[:_WORDS]
    return "\n".join([*lines, f"reason = {_text(f'{TODO}: say why. Seen: {seen}')}", ""])


def _text(value: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON; characters that TOML cannot represent are left out."""
    kept = "".join(character for character in value if character.isprintable())
    return to_json(kept, indent=None)
