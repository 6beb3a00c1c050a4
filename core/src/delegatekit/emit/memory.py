"""Plans where values live in the arena: in comes size and lifetime of each value, out goes an offset for each."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

#: Every value starts at a multiple of this many bytes.
ALIGNMENT = 16

#: Up to this many values the better, quadratic planner is affordable.
_GREEDY_LIMIT = 512


@dataclass(frozen=True)
class Request:
    """Memory for one value: `size` bytes from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in the order of the requests, and the arena's size in bytes."""

    offsets: tuple[int, ...]
    size: int


def plan_memory(requests: Sequence[Request]) -> MemoryPlan:
    """Give requests whose lifetimes overlap disjoint memory, in as small an arena as the planners find."""
    plans = [_in_order_of_time(requests)]
    if len(requests) <= _GREEDY_LIMIT:
        plans.append(_largest_first(requests))
    return min(plans, key=lambda plan: plan.size)


def _aligned(size: int) -> int:
    # A value of no bytes still gets an address of its own.
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)


def _largest_first(requests: Sequence[Request]) -> MemoryPlan:
    """Place the largest value first, each into the smallest gap among the placed ones that live at the same time."""
    placed: list[tuple[int, int, Request]] = []  # (offset, end), sorted
    offsets = [0] * len(requests)
    for index in sorted(range(len(requests)), key=lambda i: (-requests[i].size, requests[i].first, i)):
        request = requests[index]
        size = _aligned(request.size)
        best, best_gap, cursor = -1, 0, 0
        for offset, end, other in placed:
            if other.last < request.first or other.first > request.last:
                continue
            gap = offset - cursor
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = cursor, gap
            cursor = max(cursor, end)
        offsets[index] = best if best >= 0 else cursor
        bisect.insort(placed, (offsets[index], offsets[index] + size, request), key=lambda item: item[:2])
    return MemoryPlan(tuple(offsets), max((end for _, end, _ in placed), default=0))


def _in_order_of_time(requests: Sequence[Request]) -> MemoryPlan:
    """Walk through the steps, taking the smallest free block that fits and returning blocks as values die."""
    free: list[tuple[int, int]] = []  # (size, offset), sorted
    begins: dict[int, int] = {}  # free block's offset -> size
    ends: dict[int, int] = {}  # free block's end -> offset
    offsets = [0] * len(requests)
    top = 0

    def release(offset: int, size: int) -> None:
        if offset in ends:  # join with the free block in front
            start = ends.pop(offset)
            free.pop(bisect.bisect_left(free, (begins[start], start)))
            size += begins.pop(start)
            offset = start
        if offset + size in begins:  # and with the one behind
            behind = begins.pop(offset + size)
            free.pop(bisect.bisect_left(free, (behind, offset + size)))
            del ends[offset + size + behind]
            size += behind
        begins[offset], ends[offset + size] = size, offset
        bisect.insort(free, (size, offset))

    dying = sorted(range(len(requests)), key=lambda i: requests[i].last)
    next_to_die = 0
    for index in sorted(range(len(requests)), key=lambda i: (requests[i].first, -requests[i].size)):
        while next_to_die < len(dying) and requests[dying[next_to_die]].last < requests[index].first:
            dead = dying[next_to_die]
            release(offsets[dead], _aligned(requests[dead].size))
            next_to_die += 1
        size = _aligned(requests[index].size)
        place = bisect.bisect_left(free, (size, -1))
        if place < len(free):
            block, offset = free.pop(place)
            del begins[offset], ends[offset + block]
            if block > size:
                release(offset + size, block - size)
        elif top in ends:  # grow the free block at the end of the arena
            offset = ends.pop(top)
            block = begins.pop(offset)
            free.pop(bisect.bisect_left(free, (block, offset)))
            top = offset + size
        else:
            offset, top = top, top + size
        offsets[index] = offset
    return MemoryPlan(tuple(offsets), top)
