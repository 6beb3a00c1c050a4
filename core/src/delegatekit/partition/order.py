"""Topological order of small graphs of numbers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def topological(before: Sequence[set[int]], after: Sequence[set[int]]) -> list[int]:
    """Indices in topological order, the smallest ready index first; shorter than the input if there is a cycle."""
    waiting = [len(sources) for sources in before]
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in after[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    return order
