"""Slopes robust to noise: of held resources, and of a unit's cost, over the number of units."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

#: Number of the last steps that may go down or stay: growth by doubling pauses in between.
_RESTS = 2
#: A lasting rate keeps this share of itself: growth that settles, or is bounded, does not.
_KEPT = 0.5


@dataclass(frozen=True)
class Line:
    """A fitted line: its slope by unit, and its rise over the points that it was fitted to."""

    slope: float
    rise: float
    #: True if nearly each step goes up.
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
    """The last part of a series: it excludes initial filling."""
    return points[-max(2, round(len(points) * share)) :]


def goes_on(first: Line, later: Line) -> bool:
    """True if a suspected rise continues at its rate."""
    return later.slope >= _KEPT * first.slope and later.rise > 0
