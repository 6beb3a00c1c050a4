"""Crossed blobs: words of a valid one in another valid one of the same operator.

Where one word of a blob is replaced, the first check that compares it with another refuses the blob, and later ones
see nothing of it. Two programs that differ in one size have blobs that differ in the words that depend on this size:
some of these at a time, in the other blob, agree with each other and not with the rest.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from delegatekit_api import DelegatePayload

from ..context import Context
from ..strategies.extremes import load_extremes
from .base import Case, NotApplicable
from .damages import words_of
from .robustness import Replaced
from .specimens import Sample, backend_of, changed, lower, take_down

#: The sizes of the programs. None is a power of two or two more than another, which are special numbers.
_SIZES = (3, 6, 7)
#: Number of changed sizes of an operator's examples, and of examples searched for them.
_LEVERS, _SOUGHT = 2, 12
#: The operators of the quick profile: one with weights, one with windows, one that joins and one that views.
_QUICK = frozenset(f"aten.{name}.default" for name in ("convolution", "max_pool2d", "cat", "view"))
#: Blobs that differ in more fields differ in their weights, or are built otherwise.
_MOST = 64
#: This many words in a row are one field: a text, such as a key of named data.
_TEXT = 4
#: Flipped bits of the profile for one crossed blob of each pair; and the least number of these in all profiles.
_BITS, _LEAST = 8, 16
#: Where a runtime has a separate process, which some end, one of this many.
_APART = 4


@dataclass(frozen=True)
class Crossing:
    """The blobs of an operator with one size or another, crossed at random."""

    operator: str
    dtype: str
    seed: int
    #: Number of crossed blobs of each pair.
    count: int

    def describe(self) -> str:
        """One line."""
        return f"{self.operator} of {self.dtype}: blobs of different sizes crossed, each two {self.count} times"

    def damages(self, first: bytes, second: bytes) -> Iterator[tuple[bytes, str]]:
        """The first blob with some of the words of the second in which they differ, and the change in words."""
        pairs = enumerate(zip(words_of(first), words_of(second), strict=True))
        fields = _fields([place for place, (one, other) in pairs if one != other])
        if not 1 < len(fields) <= _MOST:
            return
        source = random.Random(self.seed)
        every = (1 << len(fields)) - 2
        masks = range(1, every + 1) if every <= self.count else (source.randint(1, every) for _ in range(self.count))
        for mask in masks:
            chosen = [field for bit, field in enumerate(fields) if mask >> bit & 1]
            blob = bytearray(first)
            for field in chosen:
                here = slice(4 * field.start, 4 * field.stop)
                blob[here] = second[here]
            places = ", ".join(str(4 * field.start) for field in chosen)
            yield bytes(blob), f"words at bytes {places} of {len(first)} are those of another size"


def _fields(places: Sequence[int]) -> list[range]:
    """Places of words: each by itself, and many in a row together."""
    rows: list[range] = []
    for place in places:
        start = rows.pop().start if rows and rows[-1].stop == place else place
        rows.append(range(start, place + 1))
    parted = ([row] if len(row) >= _TEXT else [range(place, place + 1) for place in row] for row in rows)
    return [field for fields in parted for field in fields]


class CrossedCase(Replaced):
    """The blobs of one operator."""

    kind = "crossed"

    @property
    def tags(self) -> Mapping[str, str]:
        """Room and operator."""
        return {"room": "robustness", "operator": self.program}

    def examples(self, context: Context) -> Sequence[Any]:
        """One; in the quick profile of few operators, as each is several lowerings."""
        if context.profile.name == "quick" and self.program not in _QUICK:
            return []
        count = max(_LEAST, context.profile.flips // _BITS)
        count //= _APART if backend_of(context).description.isolated_runtime else 1
        dtype = load_extremes()[self.program].dtypes[0]
        return [Crossing(self.program, dtype, context.seed_of(self.name), count)]

    def samples(self, context: Context) -> Sequence[Sample]:
        """Delegates of programs that differ in one size alone, one after the other."""
        extremes = load_extremes()[self.program]
        found: list[Sample] = []
        levers = 0
        for number in range(_SOUGHT):
            recipes = [extremes.sized(extremes.dtypes[0], number, size) for size in _SIZES]
            known = [recipe for recipe in recipes if recipe is not None and recipe.has_elements]
            if len(known) > 1:
                levers += 1
                with suppress(Exception):  # other rooms report failures of lowering and running
                    for recipe in known:
                        program = lower(recipe, context)
                        found += take_down(f"{self.program} {number}", recipe, program, context)
            if levers == _LEVERS:
                break
        if not found:
            raise NotApplicable("the backend takes none of the operator's examples")
        return found

    def payloads(self, example: Any, items: Sequence[Sample]) -> Iterator[tuple[DelegatePayload, str, Sample]]:
        """Each two blobs of one length that differ in a size, crossed both ways."""
        for one, other in combinations(items, 2):
            if one.name != other.name or len(one.payload.blob) != len(other.payload.blob):
                continue
            named = {key: bytes(data) for item in (one, other) for key, data in item.payload.named_data.items()}
            for item, strange in ((one, other), (other, one)):
                for blob, what in example.damages(bytes(item.payload.blob), bytes(strange.payload.blob)):
                    yield changed(item.payload, blob, named), what, item


def cases() -> Iterator[Case]:
    """All operators that have a strategy."""
    yield from map(CrossedCase, load_extremes())
