"""Finds the smallest run of operators with a fault that none of them shows by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .running import Graph, batches
from .units import Unit


def faulty_run(graph: Graph, units: Sequence[Unit]) -> tuple[Unit, ...]:
    """The smallest run found of consecutive units in one delegate that is wrong; () if there is none.

    Runs of 2, 4, 8 ... units are tried, those of one length side by side. The first wrong one is then shortened
    from both ends, by halves.
    """
    parts = [[unit for unit in units if unit.partition == number] for number in range(len(graph.plan.partitions))]
    longest, length = max(map(len, parts), default=0), 2
    while longest > 1:
        runs = [tuple(part[start : start + length]) for part in parts for start in range(0, len(part), length)]
        runs = [run for run in runs if len(run) > length // 2]
        judged = graph.attempt([graph.piece(run) for run in runs])
        wrong = next((run for run, result in zip(runs, judged, strict=True) if result.wrong), None)
        if wrong is not None:
            return shortened(wrong, lambda run: graph.attempt([graph.piece(run)])[0].wrong)
        if length >= longest:
            break
        length *= 2
    return ()


def company_of(graph: Graph, units: Sequence[Unit], culprit: Unit) -> tuple[Unit, ...]:
    """The smallest run found of units around one that is wrong only with them, unconnected, in its delegate."""
    company = next(batch for batch in batches(units) if culprit in batch)

    def is_wrong(run: Sequence[Unit]) -> bool:
        if culprit not in run:
            return False
        judged = graph.attempt([graph.piece([unit]) for unit in run])
        return judged[list(run).index(culprit)].wrong

    return shortened(company, is_wrong) if is_wrong(company) else (culprit,)


def shortened(run: Sequence[Unit], is_wrong: Callable[[Sequence[Unit]], bool]) -> tuple[Unit, ...]:
    """A wrong run, shortened first at its end, then at its beginning.

    >>> shortened("abcdefgh", lambda run: "c" in run and "e" in run)
    ('c', 'd', 'e')
    """
    end = _least(1, len(run), lambda count: is_wrong(run[:count]))
    start = end - _least(1, end, lambda count: is_wrong(run[end - count : end]))
    return tuple(run[start:end])


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The smallest number that satisfies a condition, which holds for all larger ones and for `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
