"""A second round for survivors of the quick profile: a later profile's examples of the cases that reach the place.

Recording what all examples of such a profile reach would take hours. The cases are known from the quick profile; their
other examples reach the same place or its neighborhood, and so may cases of the same rooms that the quick profile
leaves out. Nothing else is known of them: a fault counts if the plugin without the change does not have it, which
is tried when one is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from ..cases import Case
from ..context import Context
from ..joined import Joined
from ..recipe import Recipe
from .choice import Chooser, alternately
from .chosen import Attempt, pack, unpack
from .example import Example
from .sites import Mutant

#: CPU seconds of an example of a later profile, relative to one of the quick one: it also runs without any backend.
_SLOWER = 1.5


class Deeper:
    """Chooses examples of a later profile for mutants that the quick one did not kill."""

    def __init__(
        self, context: Context, cases: Mapping[str, Case], examples: Sequence[Example], chooser: Chooser
    ) -> None:
        """`examples` are the quick profile's sound ones, and `chooser` chooses among them."""
        self._context = context
        self._cases = cases
        self._chooser = chooser
        self._examples = examples
        self._known: dict[str, list[Example]] = {}
        for example in examples:
            self._known.setdefault(example.case, []).append(example)
        rooms: dict[str, list[float]] = {}
        for example in examples:
            rooms.setdefault(example.tags.get("room", ""), []).append(example.seconds)
        #: CPU seconds of a quick example of each room.
        self._seconds = {room: mean(seconds) for room, seconds in rooms.items()}
        #: Room, and operator -> the cases of which the quick profile has no sound example.
        self._others: dict[str, list[str]] = {}
        for name, case in cases.items():
            if name not in self._known:
                for tag in ("room", "operator"):
                    self._others.setdefault(case.tags.get(tag, ""), []).append(name)
        self._others.pop("", None)
        self._drawn: dict[str, list[Attempt]] = {}
        #: The first examples of cases whose further ones are not drawn yet.
        self._first: dict[str, Sequence[Any]] = {}

    def attempts(self, mutant: Mutant, seconds: float) -> tuple[list[Attempt], int]:
        """The attempts for this many CPU `seconds`, one of each case first, and how many there would be at least."""
        cases = self._reaching(mutant)
        chosen: list[Attempt] = []
        used = 0.0
        for attempt in self._in_turns(cases):
            if chosen and used + attempt.seconds > seconds:
                break
            chosen.append(attempt)
            used += attempt.seconds
        else:
            return chosen, len(chosen)
        possible = sum(len(self._drawn.get(case, (None,))) for case in cases)
        return chosen, max(possible, len(chosen) + 1)

    def _reaching(self, mutant: Mutant) -> list[str]:
        """The cases that reach the place; if none does, those that reach most of its file, and then different ones.

        In turns with them those of their operators, and after them those of their rooms, that the quick profile leaves
        out.
        """
        reaching: Sequence[Attempt | Example] = self._chooser.attempts(mutant)
        if not reaching:
            near = [example for example in self._examples if example.reaches(mutant.file, -1)]
            near.sort(key=lambda example: (-example.lines[mutant.file].bit_count(), example.seconds))
            reaching = [*near, *self._chooser.sample]
        known = [case for case in dict.fromkeys(one.case for one in reaching) if case in self._cases]
        own = (other for case in known for other in self._others.get(self._cases[case].tags.get("operator", ""), ()))
        rooms = dict.fromkeys(self._cases[case].tags.get("room", "") for case in known)
        others = (case for room in rooms for case in self._others.get(room, ()))
        return list(dict.fromkeys((*alternately(known, dict.fromkeys(own)), *others)))

    def _in_turns(self, cases: Sequence[str]) -> Iterator[Attempt]:
        """The first attempt of each case, then the second of each, and so on; drawn when it is asked for."""
        turn, left = 0, list(cases)
        while left:
            those, left = left, []
            for case in those:
                if self._has(case, turn):
                    left.append(case)
                    yield self._drawn[case][turn]
            turn += 1

    def _has(self, name: str, index: int) -> bool:
        """True if a case has this many attempts that the quick profile does not have; draws them if needed."""
        if name not in self._drawn:
            self._first[name] = self._cases[name].examples(self._context)
            self._drawn[name] = list(self._new(name, 0, self._first[name]))
        if index >= len(self._drawn[name]) and name in self._first:
            first = self._first.pop(name)
            known = self._known.get(name)
            if known is None or any(example.delegated_nodes for example in known):
                more = self._cases[name].further(first, self._context)
                self._drawn[name] += self._new(name, len(first), more)
        return index < len(self._drawn[name])

    def _new(self, name: str, start: int, examples: Sequence[Any]) -> Iterator[Attempt]:
        known = self._known.get(name, ())
        tried = {repr(unpack(example.packed)) for example in known}
        room = self._seconds[self._cases[name].tags.get("room", "")]
        seconds = _SLOWER * (mean(example.seconds for example in known) if known else room)
        for index, example in enumerate(examples, start):
            if not (isinstance(example, Recipe | Joined) and repr(example) in tried):
                yield self._chooser.unknown(name, index, pack(example), seconds)
