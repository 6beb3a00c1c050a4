"""Times calls: one alone within a limit, or several in rounds, so that other load of the machine affects all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Final

#: Consecutive calls of which the quickest counts: the first finds the caches with what other programs left there.
_IN_A_ROW: Final = 3
#: Rounds that are made however long they take, and those that are enough if `_ENOUGH` seconds have not passed.
_LEAST: Final = 3
_MOST: Final = 10
_ENOUGH: Final = 1.0


def times_alone(call: Callable[[], object], *, cpu: bool, runs: int, warm_up: int, seconds: float) -> list[float]:
    """Seconds of some calls, at least one: at most `warm_up + runs`, and none is begun after `seconds`.

    Warm-up calls are left out if others follow in time.
    """
    begin = perf_counter()
    found: list[float] = []
    while not found or (len(found) < warm_up + runs and perf_counter() - begin < seconds):
        found.append(_seconds(call, cpu=cpu))
    return found[warm_up:] or found[-1:]


def times_in_rounds(
    calls: Sequence[Callable[[], object]], *, cpu: bool, runs: int, seconds: float
) -> list[list[float]]:
    """Seconds of each call in every round; a figure is that of the quickest of three consecutive calls.

    There are `runs` rounds, up to ten times as many if they take less than a second, and fewer after `seconds`, but at
    least three. Every other round goes backwards.
    """
    found: list[list[float]] = [[] for _ in calls]
    begin = perf_counter()
    order = list(range(len(calls)))
    count = 0
    while not _done(count, perf_counter() - begin, runs, seconds):
        for index in order:
            found[index].append(min(_seconds(calls[index], cpu=cpu) for _ in range(_IN_A_ROW)))
        order.reverse()
        count += 1
    return found


def _done(count: int, passed: float, runs: int, seconds: float) -> bool:
    if count < _LEAST:
        return False
    if passed > seconds or count >= _MOST * runs:
        return True
    return count >= runs and passed > _ENOUGH


def _seconds(call: Callable[[], object], *, cpu: bool) -> float:
    clock = process_time if cpu else perf_counter
    start = clock()
    call()
    return clock() - start
