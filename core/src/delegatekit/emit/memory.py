"""Plans the memory of values in an arena: from the size and lifetime of each value to its offset."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from delegatekit_api import LoweringError

from ..errors.foreign import as_ours

#: Unless told otherwise, every value starts at a multiple of this many bytes. The runtime requires no less.
ALIGNMENT = 16

#: Limit of pairs of simultaneously live values for "best".
_PAIR_LIMIT = 2_000_000


@dataclass(frozen=True)
class Request:
    """Memory for one value: `size` bytes from step `first` to step `last`, both included.

    The offset must be a multiple of `alignment`, a power of two.
    """

    size: int
    first: int
    last: int
    alignment: int = ALIGNMENT

    @property
    def span(self) -> int:
        """Bytes up to where the next value may begin. A value of no bytes still gets an address of its own."""
        return max(self.alignment, -(-self.size // self.alignment) * self.alignment)


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in the order of the requests, and the arena's size in bytes."""

    offsets: tuple[int, ...]
    size: int


#: A planner: from requests to a plan. All requests of a call have the same alignment.
Planner: TypeAlias = Callable[[Sequence[Request]], MemoryPlan]


def plan_memory(requests: Sequence[Request], planner: str | Planner = "best") -> MemoryPlan:
    """Assign disjoint memory to requests with overlapping lifetimes.

    Planners: "greedy" places the largest values first, each into the smallest gap that it fits; "best-fit" goes
    through the steps in order and takes the smallest free block; "best" takes the smallest of several results, and
    only "best-fit" if so many values are live at the same time that the others would be slow. A user's
    own planner is checked: see `check_plan`. Raises LoweringError for an unknown name and for an invalid plan.
    """
    if isinstance(planner, str):
        if planner not in PLANNERS:
            raise LoweringError(f"there is no planner {planner!r}", hint=f"planners: {', '.join(PLANNERS)}")
        return PLANNERS[planner](requests)
    with as_ours(lambda fault: LoweringError(f"the planner failed: {fault}")):
        plan = planner(requests)
    if not isinstance(plan, MemoryPlan):
        raise LoweringError(f"the planner returned a {type(plan).__name__}, not a MemoryPlan")
    check_plan(requests, plan)
    return plan


def loads(requests: Iterable[Request]) -> Iterator[tuple[int, int]]:
    """The steps at which a value's lifetime begins or ends, and the sum of live sizes from there on."""
    changes: dict[int, int] = {}
    for request in requests:
        changes[request.first] = changes.get(request.first, 0) + request.size
        changes[request.last + 1] = changes.get(request.last + 1, 0) - request.size
    load = 0
    for step in sorted(changes):
        load += changes[step]
        yield step, load


def largest_load(requests: Sequence[Request]) -> tuple[int, int]:
    """The largest sum of live sizes at one step, the lower bound of any plan, and the first such step."""
    most = peak = 0
    for step, load in loads(requests):
        if load > most:
            most, peak = load, step
    return most, peak


def is_least(requests: Sequence[Request], plan: MemoryPlan) -> bool:
    """True if no plan of these requests can be smaller."""
    return plan.size <= largest_load([Request(r.span, r.first, r.last, r.alignment) for r in requests])[0]


def check_plan(
    requests: Sequence[Request], plan: MemoryPlan, describe: Callable[[int], str] = "request {}".format
) -> None:
    """Raise LoweringError, naming the request or the pair, unless the plan is valid.

    Offsets are aligned and inside the arena, and values in use at the same time do not overlap.
    """
    if len(plan.offsets) != len(requests):
        raise LoweringError(f"the plan has {len(plan.offsets)} offsets for {len(requests)} values")
    events: list[tuple[int, int, int]] = []  # (step, 0 for an end or 1 for a begin, request)
    for index, (request, offset) in enumerate(zip(requests, plan.offsets, strict=True)):
        place = f"the plan puts {describe(index)} ({request.size} bytes) at offset {offset!r}"
        if not isinstance(offset, int) or offset < 0 or offset % request.alignment:
            raise LoweringError(f"{place}, which is not a multiple of {request.alignment}")
        if offset + request.size > plan.size:
            raise LoweringError(f"{place}, beyond the end of its arena of {plan.size} bytes")
        if request.size:
            events += [(request.first, 1, index), (request.last + 1, 0, index)]
    live: list[tuple[int, int]] = []  # (offset, request), sorted; disjoint as long as the plan is valid
    for _, begins, index in sorted(events):
        item = (plan.offsets[index], index)
        place_in_live = bisect.bisect_left(live, item)
        if not begins:
            del live[place_in_live]
            continue
        for offset, other in live[max(0, place_in_live - 1) : place_in_live + 1]:
            if offset < item[0] + requests[index].size and item[0] < offset + requests[other].size:
                pair = [
                    f"{describe(one)} (bytes {plan.offsets[one]} to {plan.offsets[one] + requests[one].size}, "
                    f"steps {requests[one].first} to {requests[one].last})"
                    for one in sorted((index, other))
                ]
                raise LoweringError(f"the plan lets two values overlap while both are in use: {pair[0]} and {pair[1]}")
        live.insert(place_in_live, item)


# -- planners --------------------------------------------------------------------------------------------------------


def plan_greedy(requests: Sequence[Request]) -> MemoryPlan:
    """Place the largest value first, each into the smallest gap among simultaneously live placed ones."""
    return _plan_in_order(requests, lambda request: -request.size)


def _plan_in_order(requests: Sequence[Request], rank: Callable[[Request], int]) -> MemoryPlan:
    placed = Placed(requests)
    for index in sorted(range(len(requests)), key=lambda i: (rank(requests[i]), requests[i].first, i)):
        placed.put(index, placed.gap(index))
    return placed.plan()


class Placed:
    """The placed values of one arena, and the gaps between them."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.offsets = [0] * len(requests)
        self.size = 0
        borders = sorted({step for request in requests for step in (request.first, request.last)})
        self._rank = {step: rank for rank, step in enumerate(borders)}
        self._leaves = 1 << max(0, (len(borders) - 1).bit_length())
        # A lifetime is stored at the few nodes of a tree over the steps that together cover it.
        self._covering: dict[int, list[int]] = {}
        self._starts: list[tuple[int, int]] = []  # (first, request), sorted

    def put(self, index: int, offset: int) -> None:
        """Place a value."""
        self.offsets[index] = offset
        request = self.requests[index]
        self.size = max(self.size, offset + request.span)
        bisect.insort(self._starts, (request.first, index))
        low, high = self._rank[request.first] + self._leaves, self._rank[request.last] + self._leaves + 1
        while low < high:
            if low & 1:
                self._covering.setdefault(low, []).append(index)
                low += 1
            if high & 1:
                high -= 1
                self._covering.setdefault(high, []).append(index)
            low, high = low // 2, high // 2

    def gap(self, index: int) -> int:
        """The offset of the smallest gap that the value fits during its lifetime; after everything if there is none."""
        request, size = self.requests[index], self.requests[index].span
        best, best_gap, cursor = -1, 0, 0
        for offset, end in sorted((self.offsets[i], self.offsets[i] + self.requests[i].span) for i in self._met(index)):
            free = offset - cursor
            if free >= size and (best < 0 or free < best_gap):
                best, best_gap = cursor, free
            cursor = max(cursor, end)
        return best if best >= 0 else -(-cursor // request.alignment) * request.alignment

    def _met(self, index: int) -> list[int]:
        """The placed values with overlapping lifetimes: alive when it begins, or beginning later."""
        request = self.requests[index]
        found: list[int] = []
        node = self._rank[request.first] + self._leaves
        while node:
            found += self._covering.get(node, ())
            node //= 2
        later = bisect.bisect_left(self._starts, (request.first + 1, -1))
        found += [other for _, other in self._starts[later : bisect.bisect_left(self._starts, (request.last + 1, -1))]]
        return found

    def plan(self) -> MemoryPlan:
        """The finished plan."""
        return MemoryPlan(tuple(self.offsets), self.size)


def plan_best_fit(requests: Sequence[Request]) -> MemoryPlan:
    """Walk through the steps, taking the smallest free block that fits and returning the blocks of dead values."""
    free = _FreeBlocks()
    offsets = [0] * len(requests)
    dying = sorted(range(len(requests)), key=lambda i: requests[i].last)
    next_to_die = 0
    for index in sorted(range(len(requests)), key=lambda i: (requests[i].first, -requests[i].size)):
        while next_to_die < len(dying) and requests[dying[next_to_die]].last < requests[index].first:
            dead = dying[next_to_die]
            free.release(offsets[dead], requests[dead].span)
            next_to_die += 1
        offsets[index] = free.take(requests[index].span)
    return MemoryPlan(tuple(offsets), free.top)


class _FreeBlocks:
    """A growing arena, and its free blocks; neighbors are joined."""

    def __init__(self) -> None:
        self.top = 0
        self._sorted: list[tuple[int, int]] = []  # (size, offset)
        self._begins: dict[int, int] = {}  # free block's offset -> size
        self._ends: dict[int, int] = {}  # free block's end -> offset

    def take(self, size: int) -> int:
        """The offset of a block of this size, at the start of the smallest free block, or at the arena's end."""
        place = bisect.bisect_left(self._sorted, (size, -1))
        if place < len(self._sorted):
            block, offset = self._sorted[place]
            self._remove(offset)
            if block > size:
                self._add(offset + size, block - size)
            return offset
        offset = self._ends.get(self.top, self.top)
        if offset < self.top:  # grow the free block at the end
            self._remove(offset)
        self.top = offset + size
        return offset

    def release(self, offset: int, size: int) -> None:
        """Free a block."""
        if offset in self._ends:  # join with the free block in front
            start = self._ends[offset]
            size += self._remove(start)
            offset = start
        if offset + size in self._begins:  # and with the one after it
            size += self._remove(offset + size)
        self._add(offset, size)

    def _add(self, offset: int, size: int) -> None:
        self._begins[offset], self._ends[offset + size] = size, offset
        bisect.insort(self._sorted, (size, offset))

    def _remove(self, offset: int) -> int:
        size = self._begins.pop(offset)
        del self._ends[offset + size]
        self._sorted.pop(bisect.bisect_left(self._sorted, (size, offset)))
        return size


def plan_best(requests: Sequence[Request]) -> MemoryPlan:
    """The smallest of the planners' results, and of placing first by size times lifetime, or by lifetime."""
    end = max((request.last for request in requests if request.last < 1 << 60), default=0) + 1
    orders: list[Callable[[Request], int]] = [
        lambda request: -request.size,
        lambda request: -request.size * (min(request.last, end) - request.first + 1),
        lambda request: request.first - min(request.last, end),
    ]
    best = plan_best_fit(requests)
    for order in orders[: _PAIR_LIMIT // max(1, _pairs(requests))]:
        if is_least(requests, best):
            break
        best = min(best, _plan_in_order(requests, order), key=lambda plan: plan.size)
    return best


def _pairs(requests: Sequence[Request]) -> int:
    """The number of pairs of requests that are live at the same time."""
    ends = sorted(request.last for request in requests)
    starts = sorted(request.first for request in requests)
    # Pairs that do not overlap: one ends before the other begins.
    apart = sum(bisect.bisect_left(ends, start) for start in starts)
    return len(requests) * (len(requests) - 1) // 2 - apart


#: The planners by name.
PLANNERS: dict[str, Planner] = {"best": plan_best, "greedy": plan_greedy, "best-fit": plan_best_fit}
