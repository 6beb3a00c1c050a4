"""Merges grown sets of one kind, exactly, if no path leads from one through a third to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from delegatekit_api import LoweringError

from .order import topological


class Quotient:
    """Sets and fallback clusters as vertices; for each, the sets before and after it as bits of an integer.

    `owner` is the set of a cluster, `kind` the kind of a set; a set of kind 0 is not merged. `order` and
    `users` are those of the clusters. Raises LoweringError if the sets depend on each other in a cycle.
    """

    def __init__(
        self, owner: Mapping[int, int], kind: Sequence[int], order: Sequence[int], users: Sequence[set[int]]
    ) -> None:
        self.kind = kind
        self.count = len(kind)
        self.merged_into = list(range(self.count))
        vertex = dict(owner)
        for index in order:
            if index not in vertex:
                vertex[index] = self.count + len(vertex)
        names = {name: number for number, name in enumerate(sorted(set(vertex.values())))}
        size = len(names)
        self.after: list[set[int]] = [set() for _ in range(size)]
        self.before: list[set[int]] = [set() for _ in range(size)]
        for index, readers in enumerate(users):
            source = names[vertex[index]]
            for user in readers:
                target = names[vertex[user]]
                if source != target:
                    self.after[source].add(target)
                    self.before[target].add(source)
        ordered = topological(self.before, self.after)
        if len(ordered) != size:
            raise LoweringError("partition growth made a cycle: this is a fault of DelegateKit")
        self.later = self._closure(reversed(ordered), self.after)
        self.earlier = self._closure(ordered, self.before)

    def _closure(self, order: Iterable[int], towards: list[set[int]]) -> list[int]:
        reach = [0] * len(self.after)
        for vertex in order:
            bits = 0
            for other in towards[vertex]:
                bits |= reach[other]
                if other < self.count:
                    bits |= 1 << other
            reach[vertex] = bits
        return reach

    def merge_all(self) -> None:
        """Merge as long as there are two sets of one kind without a path between them through a third."""
        of_kind: dict[int, int] = {}
        for number, kind in enumerate(self.kind):
            if kind:
                of_kind[kind] = of_kind.get(kind, 0) | 1 << number
        for number, kind in enumerate(self.kind):
            while kind and self.merged_into[number] == number:
                blocked = 1 << number
                for other in self.after[number]:
                    blocked |= self.later[other]
                for other in self.before[number]:
                    blocked |= self.earlier[other]
                candidates = of_kind[kind] & ~blocked
                if not candidates:
                    break
                partner = (candidates & -candidates).bit_length() - 1
                self._merge(number, partner)
                of_kind[kind] &= ~(1 << partner)

    def _merge(self, number: int, partner: int) -> None:
        self.merged_into[partner] = number
        both = 1 << number | 1 << partner
        for neighbors, back in ((self.after, self.before), (self.before, self.after)):
            for other in neighbors[partner]:
                back[other].discard(partner)
                back[other].add(number)
            neighbors[number] |= neighbors[partner]
            neighbors[number] -= {number, partner}
            neighbors[partner] = set()
        later = (self.later[number] | self.later[partner]) & ~both
        earlier = (self.earlier[number] | self.earlier[partner]) & ~both
        for reach, own in ((self.later, later), (self.earlier, earlier)):
            for vertex, bits in enumerate(reach):
                if bits & both:
                    reach[vertex] = bits | both | own
        self.later[number], self.earlier[number] = later, earlier

    def final(self, number: int) -> int:
        """The set that a set was merged into; itself if it was not."""
        while self.merged_into[number] != number:
            number = self.merged_into[number]
        return number
