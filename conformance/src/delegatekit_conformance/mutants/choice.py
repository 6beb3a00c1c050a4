"""The examples that a mutant is tried with, and their order: those that reach the place, different ones first."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar

from .chosen import Attempt, content
from .example import Example, Seen, mask
from .sites import Mutant, Plugin, surroundings

_T = TypeVar("_T")

#: Where many examples reach a place because it is run once for all, this many different ones are tried.
_SAMPLE = 60
#: This many users of a module's definitions come before those that import it.
_FIRST = 40
#: This many that damage delegates, of those that reach a place.
_DAMAGED = 16
#: CPU seconds after which an example counts as a hang, and the multiple of its earlier time that it may take besides.
_LEAST = 10.0
_SLOWER = 5.0
#: Shorter texts occur in many places with another meaning.
_WORD = 4
#: A read of an option in a line.
_OPTION = re.compile(r"options\.(\w+)")


def within(attempts: Iterable[Attempt], seconds: float) -> list[Attempt]:
    """The first attempts, up to this many CPU `seconds`, one at least; later ones that still fit, too."""
    kept: list[Attempt] = []
    used = 0.0
    for attempt in attempts:
        if kept and used + attempt.seconds > seconds:
            continue
        kept.append(attempt)
        used += attempt.seconds
    return kept


def beyond(attempts: Sequence[Attempt], spent: float, seconds: float) -> list[Attempt]:
    """As `within`, without those for which the CPU seconds `spent` before sufficed."""
    before = {attempt.name for attempt in within(attempts, spent)} if spent else ()
    return within([attempt for attempt in attempts if attempt.name not in before], seconds)


class Chooser:
    """Chooses the examples for the mutants of one plugin."""

    def __init__(self, plugin: Plugin, examples: Sequence[Example]) -> None:
        """`examples` are sound with the plugin as it is."""
        self._plugin = plugin
        self._examples = examples

    def attempts(self, mutant: Mutant) -> list[Attempt]:
        """The attempts of all examples that may reach the place, in their order."""
        found: dict[str, Attempt] = {}
        for example in self._ordered(mutant):
            attempt = self.attempt(example)
            found.setdefault(attempt.name, attempt)
        return list(found.values())

    def reaches(self, attempt: Attempt, file: str, lines: int) -> bool:
        """True if the attempt's example runs one of the lines."""
        return self._by_name[attempt.name].reaches(file, lines)

    @cached_property
    def _by_name(self) -> Mapping[str, Example]:
        return {self.attempt(example).name: example for example in self._examples}

    @staticmethod
    def attempt(example: Example) -> Attempt:
        """The facts of an example that a worker needs."""
        known = {one.name: getattr(example, one.name) for one in fields(Seen)}
        return Attempt(**known, limit=_LEAST + _SLOWER * example.seconds, sound=not example.carried)

    @staticmethod
    def unknown(case: str, index: int, packed: str, seconds: float) -> Attempt:
        """The facts of an example that was not tried yet, and takes about this many CPU `seconds`, for a worker."""
        limit = _LEAST + _SLOWER * seconds
        return Attempt(case, index, packed, seconds, "", 0, 0, 0, limit=limit, sound=False)

    @cached_property
    def sample(self) -> Sequence[Example]:
        """Examples each of which reaches most lines that those before it do not, for the time that it takes."""
        return tuple(_diverse(self._examples))

    def _ordered(self, mutant: Mutant) -> Iterator[Example]:
        known = surroundings(self._plugin, mutant)
        users, bodies = _masks(known.users), _masks(known.bodies)
        if mutant.file in self._plugin.shaders and self._reaching(mutant.file, -1):
            yield from _mixed(self._reaching(mutant.file, mutant.blocks), {mutant.file: -1})
            # Others dispatch it in a process of their own, if at all.
            unseen = (example for example in self._examples if mutant.file not in example.lines)
            yield from _mixed((one for one in unseen if any(one.reaches(*user) for user in users.items())), users)
            return
        if not self._reaching(mutant.file, -1):
            # Nothing is known of it: it runs in processes that are not recorded, if at all.
            yield from self.sample
            return
        around = {mutant.file: mask(*(known.function or mutant.lines))}
        # Python reports no line of its own for each part of an expression.
        direct = self._reaching(mutant.file, mask(*mutant.lines))
        direct = direct or self._reaching(mutant.file, mask(*known.statement))
        # Elsewhere an option has its default.
        read = set(_OPTION.findall(mutant.text))
        yield from _mixed((example for example in direct if _option_of(example) in read), around)
        using = self._reaching_any(users)
        if not known.once:
            yield from self._by_turns(direct, around)
            # Others use the values that a module makes by it at import.
            yield from islice(_mixed(using, users), _FIRST)
            return
        # The rules about options match the module of this name, and so on.
        subject = Path(mutant.file).stem
        yield from _mixed((one for one in self._examples if one.is_rule and subject in _words(one.case)), {})
        yield from islice(_mixed(self._mentioning(known.texts), users), _FIRST)
        named = [example for example in self._examples if _concerns(example, known.operators)]
        # Code that runs at import is reached by rules about processes, which take seconds: a few others come first.
        first = alternately(_mixed(filter(_computes, named), users), _mixed(filter(_computes, using), users))
        yield from islice(_mixed(self._reaching_any(bodies), bodies), _FIRST)
        yield from islice(first, _FIRST)
        yield from _mixed(direct, around)
        yield from first
        yield from alternately(_mixed(named, users), _mixed(using, users))
        yield from self.sample

    def _by_turns(self, direct: Sequence[Example], around: dict[str, int]) -> Iterator[Example]:
        """Rules, programs that differ in the place, and programs that differ elsewhere: each has its share of time.

        A place that all programs reach alike is found by a rule, or by other parts of the program; a guard of code that
        reads delegates by damaged ones.
        """
        programs = [example for example in direct if not example.is_rule]
        here = frozenset(map(id, programs))
        different = (example for example in self.sample if id(example) in here)
        rules = _mixed((example for example in direct if example.is_rule), around)
        damaged = islice(_mixed((example for example in direct if example.damages_refused), around), _DAMAGED)
        yield from _shared(rules, damaged, _mixed(programs, around), different)

    def _mentioning(self, texts: Iterable[str]) -> list[Example]:
        """The examples that are given one of the texts: as an option's value, a name in a program or a message."""
        words = [text.encode() for text in texts if len(text) >= _WORD]
        return [one for one in self._examples if any(word in self._given[id(one)] for word in words)]

    @cached_property
    def _given(self) -> Mapping[int, bytes]:
        """The contents of the examples, by identity."""
        return {id(example): content(example.packed) for example in self._examples}

    def _reaching_any(self, lines: dict[str, int]) -> list[Example]:
        return [example for example in self._examples if any(example.reaches(*some) for some in lines.items())]

    def _reaching(self, file: str, lines: int) -> list[Example]:
        return [example for example in self._examples if example.reaches(file, lines)]


def _masks(places: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Lines of files as masks."""
    found: dict[str, int] = {}
    for file, line in places:
        found[file] = found.get(file, 0) | 1 << line
    return found


def _words(case: str) -> list[str]:
    return re.split(r"\W+", case)


def _computes(example: Example) -> bool:
    """True if the backend computes something in it."""
    return example.delegate_bytes > 0


def _option_of(example: Example) -> str:
    """The option that the example's case is about: "options/weights=float16" is about weights."""
    room, _, choice = example.case.partition("/")
    return choice.partition("=")[0] if room == "options" else ""


def _concerns(example: Example, operators: Iterable[str]) -> bool:
    """True if the example is one of an operator of these names, with or without the overload's."""
    name = example.tags.get("operator", "").removeprefix("aten.")
    return bool(name) and any(name == known or name.partition(".")[0] == known for known in operators)


def _mixed(examples: Iterable[Example], lines: dict[str, int]) -> Iterator[Example]:
    """One example of each path through the lines, the cheapest first; then the next of each, and so on.

    Examples of one case's subject that come out alike count as one way.
    """
    ways: dict[object, list[Example]] = {}
    for example in sorted(examples, key=lambda example: (example.seconds, example.case, example.index)):
        way = tuple(example.lines.get(file, 0) & mask for file, mask in lines.items())
        subject = example.tags.get("operator") or (example.case if example.is_rule else example.tags.get("room", ""))
        ways.setdefault((way, example.verdict, subject), []).append(example)
    # Paths of few examples are most specific to the place.
    groups = sorted(ways.values(), key=lambda group: (group[0].total * len(group), group[0].case))
    for round in zip_longest(*groups):
        yield from sorted(filter(None, round), key=_cost)


def _cost(example: Example) -> float:
    """Seconds, coarsely: the order of the ways decides among examples that cost about the same."""
    return float(int(example.seconds / 2.0))


def _diverse(examples: Sequence[Example]) -> Iterator[Example]:
    """A sample in which each example reaches most lines that those before it do not, for the time it takes."""
    reached: dict[str, int] = {}
    left = list(examples)
    for _ in range(_SAMPLE):
        best, value = None, 0.0
        for example in left:
            new = sum((mask & ~reached.get(file, 0)).bit_count() for file, mask in example.lines.items())
            if new / (example.seconds + 0.5) > value:
                best, value = example, new / (example.seconds + 0.5)
        if best is None:
            return
        for file, lines in best.lines.items():
            reached[file] = reached.get(file, 0) | lines
        left.remove(best)
        yield best


def _shared(*sources: Iterator[Example]) -> Iterator[Example]:
    """All examples; the next one is always of the source that has had least time."""
    waiting = [(0.0, place) for place in range(len(sources))]
    while waiting:
        used, place = heapq.heappop(waiting)
        example = next(sources[place], None)
        if example is not None:
            yield example
            heapq.heappush(waiting, (used + example.seconds, place))


def alternately(*sources: Iterable[_T]) -> Iterator[_T]:
    """The first of each source, then the second of each, and so on."""
    for round in zip_longest(*sources):
        yield from filter(None, round)
