"""Slopes that noise does not bend: of what is held, and of what a unit costs, over the units that were done."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: How many of the last steps may go down or stay: what grows by doubling rests in between.
_RESTS = 2
#: A rate that goes on keeps this share of itself: what settles, or is bounded, does not.
_KEPT = 0.5


@dataclass(frozen=True)
class Line:
    """A fitted line: its slope by unit, and its rise over the points that it was fitted to."""

    slope: float
    rise: float
    #: Whether nearly each step goes up.
    steady: bool


def line(points: Sequence[tuple[float, float]]) -> Line:
    """The line through points by Theil and Sen: the median of the slopes of all pairs. Needs two points at least."""
    slopes = [(b - a) / (y - x) for (x, a), (y, b) in itertools.combinations(points, 2) if y != x]
    slope = median(slopes)
    steps = [b - a for (_, a), (_, b) in itertools.pairwise(points)]
    ups = sum(step > 0 for step in steps)
    rise = slope * (points[-1][0] - points[0][0])
    return Line(slope, rise, ups >= max(1, len(steps) - _RESTS))


def last(points: Sequence[tuple[float, float]], share: float = 0.625) -> Sequence[tuple[float, float]]:
    """The last part of a series: what fills up at the beginning is not in it."""
    return points[-max(2, round(len(points) * share)) :]


def goes_on(first: Line, later: Line) -> bool:
    """Whether a rise that was suspected continues at its rate."""
    return later.slope >= _KEPT * first.slope and later.rise > 0
