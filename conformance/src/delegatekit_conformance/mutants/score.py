"""The score of the suite on one plugin: its mutants killed by the suite, room by room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from delegatekit.files import write_text
from delegatekit_api import FormatError
from delegatekit_toolkit.json_text import decoded, parse_object, said, to_json

from ..errors import InputError
from .engine import Found

#: Version of the layout of the file.
FORMAT = 1


@dataclass(frozen=True)
class Judged:
    """A mutant with its outcome: with the quick profile's examples, and, where those did not kill it, others'."""

    name: str
    room: str
    file: str
    line: int
    kind: str
    text: str
    before: str
    after: str
    found: tuple[Found, ...]

    def killed(self, profile: str) -> bool:
        """True if the examples of the profile, or of one before it, killed it."""
        return any(found.killed for found in self._until(profile))

    def told(self, profile: str) -> bool:
        """True if they found no fault, and the difference to a run without the change reports it.

        Less is delegated, delegates are larger or have more work for the same operators, or the backend describes
        itself differently.
        """
        return not self.killed(profile) and any(found.told for found in self._until(profile))

    def _until(self, profile: str) -> Sequence[Found]:
        profiles = [found.profile for found in self.found]
        return self.found[: profiles.index(profile) + 1] if profile in profiles else self.found


@dataclass(frozen=True)
class Rate:
    """Number of mutants, of killed ones, and of further ones that a comparison of two runs reports."""

    killed: int
    told: int
    mutants: int

    @property
    def found(self) -> int:
        """The number found in one of the two ways."""
        return self.killed + self.told


@dataclass(frozen=True)
class Score:
    """The mutants of one plugin with their outcomes."""

    backend: str
    #: Versions of the backend's distribution and of the suite.
    version: str
    suite: str
    seed: int
    #: The profiles whose examples were tried, in their order.
    profiles: tuple[str, ...]
    judged: tuple[Judged, ...]
    #: Number of drawn mutants that are marked as equivalent.
    equivalent: int = 0
    #: Patterns of the cases that were used; none means all.
    select: tuple[str, ...] = ()
    #: CPU seconds of examples that a mutant was tried with, for each profile; 0 if it was not kept.
    seconds: float = 0.0

    def rate(self, profile: str, room: str = "") -> Rate:
        """The rate of the profile over the mutants of a room, or over all."""
        chosen = [judged for judged in self.judged if room in ("", judged.room)]
        killed = sum(judged.killed(profile) for judged in chosen)
        return Rate(killed, sum(judged.told(profile) for judged in chosen), len(chosen))

    @property
    def rooms(self) -> Sequence[str]:
        """The rooms in alphabetical order."""
        return sorted({judged.room for judged in self.judged})

    @property
    def survivors(self) -> Sequence[Judged]:
        """Mutants that no profile found."""
        last = self.profiles[-1]
        return [judged for judged in self.judged if not (judged.killed(last) or judged.told(last))]

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping."""
        return {"format": FORMAT} | {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], where: str = "score") -> Score:
        """The inverse of `to_json`. Raises FormatError, with `where`, for anything else."""
        if values.get("format") != FORMAT:
            raise FormatError(f"its format is {said(values.get('format'))}, and not {FORMAT}", where=where)
        return decoded(cls, {key: value for key, value in values.items() if key != "format"}, where)


def write(path: Path, score: Score) -> None:
    """Write a score as JSON."""
    write_text(path, to_json(score.to_json()) + "\n")


def read(path: Path) -> Score:
    """A score that `write` wrote. Raises InputError if the file is something else."""
    try:
        return Score.from_json(parse_object(path.read_bytes(), str(path)), str(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error
    except FormatError as error:
        raise InputError(f"is no score of mutants: {error.what}", where=str(path)) from error


def merge(parts: Sequence[Score]) -> Score:
    """The score of shards together. Raises InputError if they belong to different runs."""
    first, *others = parts
    for other in others:
        if replace(first, judged=(), equivalent=0) != replace(other, judged=(), equivalent=0):
            raise InputError("the scores are not parts of one run: they differ in more than their mutants")
    judged = {entry.name: entry for part in parts for entry in part.judged}
    return replace(first, judged=tuple(judged.values()), equivalent=sum(part.equivalent for part in parts))
