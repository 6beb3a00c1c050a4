"""Marks of equivalent mutants, with the reasons: `mutants.toml` beside a plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..vendor import values_of
from .sites import Mutant, Plugin, every_mark

#: The file's name, in the folder of the plugin's package.
FILE = "mutants.toml"
_KEYS = frozenset({"file", "line", "before", "after", "reason"})
_NEEDED = frozenset({"file", "reason"})


@dataclass(frozen=True)
class Mark:
    """A change that gives an equivalent program; an omitted field matches anything.

    A mark with only a file is for a file that no user of the plugin runs.
    """

    file: str
    reason: str
    #: The text of the line where the change begins, without the blanks around it.
    line: str = ""
    before: str = ""
    #: Replacement of `before`.
    after: str = ""

    def covers(self, file: str, line: str, before: str, after: str) -> bool:
        """True if a change is one of those that are marked."""
        pairs = ((self.line, line), (self.before, before), (self.after, after))
        return self.file == file and all(mine in ("", theirs) for mine, theirs in pairs)


def read(plugin: Plugin) -> tuple[Mark, ...]:
    """The marks of a plugin; none if it has no such file.

    Raises InputError if the file is wrong, or if a mark matches no possible change of the plugin as it is.
    """
    path = plugin.folder / FILE
    if not path.exists():
        return ()
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    content = values_of(text, str(path))
    entries = content.get("equivalent", [])
    if set(content) - {"equivalent"} or not isinstance(entries, list):
        raise InputError("may have nothing but [[equivalent]]", where=str(path))
    marks = tuple(_mark(entry, f"{path}, entry {number}") for number, entry in enumerate(entries, 1))
    possible = set(every_mark(plugin)) if marks else set()
    for mark in marks:
        if not any(mark.covers(*change) for change in possible):
            raise InputError(
                f"no change of {mark.file} makes {mark.after or 'anything'!r} of {mark.before or 'anything'!r} in "
                f"{mark.line or 'any line'!r}",
                where=str(path),
                hint="remove the entry, or write the line as it is now",
            )
    return marks


def _mark(entry: Any, where: str) -> Mark:
    if not isinstance(entry, Mapping) or not all(isinstance(value, str) for value in entry.values()):
        raise InputError("is not a table of texts", where=where)
    missing = _NEEDED - set(entry)
    if missing or set(entry) - _KEYS:
        wrong = sorted(missing or set(entry) - _KEYS)
        raise InputError(f"{'lacks' if missing else 'has unknown'} {', '.join(wrong)}", where=where)
    if not entry["reason"].strip():
        raise InputError("has no reason", where=where)
    return Mark(**entry)


def marked(mutant: Mutant, marks: Iterable[Mark]) -> Mark | None:
    """The mark of a mutant, if it has one."""
    return next((mark for mark in marks if mark.covers(mutant.file, mutant.text, mutant.before, mutant.after)), None)
