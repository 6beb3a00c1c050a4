"""A history that is repeated while meters are read: a rise is suspected, and blamed if it continues.

A temporary rise (a cache that fills up, a heap that settles) has stopped when three times as many units have
followed; slowness of a busy machine is not proportional to the number of units.
"""

from __future__ import annotations

import gc
import itertools
import tracemalloc
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from .fit import Line, goes_on, last, line
from .meters import METERS, Meter, bytecodes, seconds, state, still_heap, temporary_folder

#: Readings of the meters in a series, and in its continuation.
_INTERVALS = 8
_MOST = 2 * _INTERVALS + 1
#: Files, threads or processes that a history may leave behind before it is ended.
_SCARCE = 150
#: Factor of units that follow where something rises.
_FURTHER = 3
#: Shares of the time: the beginning, which is ignored, and that of the meters themselves.
_WARM_UP, _MEASURED = 0.2, 0.7
#: Units before the meters are first read, at least, and units needed for a verdict.
_FIRST, _FEWEST = 12, 24
#: CPU seconds of a block of units, of which the quickest in each interval counts; and the least number of blocks, if
#: there are as many units: a machine that others use is as slow as twice the time for one block, not for all.
_BLOCK, _BLOCKS = 0.002, 8
#: A unit is traced if it takes at most this long, in CPU seconds: tracing takes some ten times as long.
_TRACED = 0.025
#: A rise of a unit's cost that is suspected, as a share, and one that is blamed after all units.
_SUSPECTED, _SLOWER = 0.1, 1.5
#: The same of its instructions: they differ a little by what is in a cache.
_LONGER = 0.005
#: A negligible rise of a unit's cost, in CPU seconds and in the interpreter's instructions.
_SHORT, _FEW = 4e-6, 8
#: A leak with this share of the growth without the backend is not the backend's.
_OURS = 0.5
#: Units of a part of a history by itself, and while allocations are traced.
_ALONE, _EXPLAINED = 48, 64


@dataclass(frozen=True)
class History:
    """The repeated work: each part of it once is a unit."""

    #: One unit in a word: "call".
    unit: str
    #: The work, by program; the argument is the number of the unit, from zero.
    parts: Mapping[str, Callable[[int], None]]
    #: True if each unit keeps something on purpose: then only its cost must not grow.
    keeps: bool = False
    #: Units, at most.
    most: int = 20_000
    #: A unit's work without the backend: its leaks are not the backend's.
    control: Callable[[int], None] | None = None

    def alone(self, part: str) -> History:
        """The history of one part."""
        return History(self.unit, {part: self.parts[part]}, self.keeps, self.most)


#: Cost of a unit of the last interval, without the meters: CPU seconds, compared with work that is none of the
#: backend's and was done in between; and instructions of Python's interpreter, zero if they were not counted.
_COST, _BYTECODES, _UNITS = "CPU seconds", "instructions", "units"


class Readings:
    """Readings of the meters, in memory allocated from the beginning: readings must not look like growth."""

    def __init__(self) -> None:
        names = (_UNITS, _COST, _BYTECODES, *(meter.name for meter in METERS))
        self._values = {name: array("d", bytes(8 * _MOST)) for name in names}
        self.count = 0

    def add(self, found: Mapping[str, float]) -> None:
        """One more reading."""
        for name, values in self._values.items():
            values[self.count] = found.get(name, 0.0)
        self.count += 1

    def points(self, name: str, start: int = 0) -> list[tuple[float, float]]:
        """A meter's readings by the number of units, from the reading number `start` on."""
        units, values = self._values[_UNITS], self._values[name]
        return [(units[index], values[index]) for index in range(start, self.count)]


@dataclass(frozen=True)
class Growth:
    """The growth, in words."""

    detail: str


class TooSlow(Exception):  # noqa: N818  not an error
    """Too few units fit into the time."""


class _Series:
    """Units of a history, and the readings after them."""

    def __init__(self, history: History, folder: Path) -> None:
        self.history = history
        self.units = 0
        self.readings = Readings()
        self._folder = folder
        self._parts = tuple(history.parts.values())
        self._control: float | None = None
        self._block = 1
        self._traces = False

    def unit(self) -> None:
        for part in self._parts:
            part(self.units)
        self.units += 1

    def warm_up(self, most: float) -> float:
        """Some units; their length in CPU seconds."""
        begin = seconds()
        while self.units < _FIRST or (seconds() - begin < most and self.units < self.history.most // 16):
            self.unit()
        start = seconds()
        for _ in range(3):
            self.unit()
        each = max((seconds() - start) / 3, 1e-6)
        self._block = max(1, round(_BLOCK / each))
        self._traces = each < _TRACED
        bytecodes(lambda: None)
        state(self._folder)  # allocations of the first reading are not the backend's
        return each

    def interval(self, units: int) -> None:
        """This many units, or some more, and a reading."""
        costs, controls = [], []
        # Larger ones would go beyond what the history offers, and take its time.
        block = min(self._block, max(1, units // _BLOCKS))
        for _ in range(-(-units // block)):
            start = seconds()
            for _ in range(block):
                self.unit()
            costs.append((seconds() - start) / block)
            _others()  # the units' reads have evicted this from the caches, in proportion to their size
            between = seconds()
            _others()
            controls.append(seconds() - between)
        if self._control is None:
            self._control = min(controls)
        cost = min(costs) * self._control / max(min(controls), 1e-9)
        del costs, controls
        more = {_UNITS: self.units, _COST: cost, _BYTECODES: self._traced()}
        self.readings.add({**state(self._folder), **more})

    def _traced(self) -> int:
        if not self._traces:
            return 0
        enabled = gc.isenabled()
        gc.disable()  # garbage collection is not the unit's
        try:
            return bytecodes(self.unit)
        finally:
            if enabled:
                gc.enable()


def _others() -> None:
    """Work that is none of the backend's, of Python and of torch: it is as slow as the machine is at present."""
    value = torch.ones(64)
    table = {}
    for number in range(60):
        value = torch.add(value, value, alpha=1e-3)
        table[str(number)] = (number, value)


def growth(history: History, budget: float, most: float) -> tuple[Growth | None, int]:
    """The growth of a history, and the number of units.

    `budget` is in CPU seconds; where something is suspected, up to `most` are used. Raises TooSlow if fewer units
    than a verdict needs fit into four times the budget, and exceptions of the history's parts.
    """
    with still_heap(), temporary_folder() as folder:
        series = _Series(history, folder)
        begin = seconds()
        each = series.warm_up(_WARM_UP * budget)
        if each * _FEWEST > 4 * budget:
            raise TooSlow(f"too slow: a {history.unit} takes {each:.2f} CPU seconds")
        # All units of the history, of which three quarters are for suspects.
        offered = (history.most - series.units) // (1 + _FURTHER)
        count = max(_FEWEST, min(offered, int(_MEASURED * budget / each)))
        for _ in range(_INTERVALS + 1):  # the first reading is the start of the second
            series.interval(-(-count // _INTERVALS))
            if _runs_out(series):
                break
        suspects = list(_suspects(series))
        split = series.readings.count
        for _ in range(_INTERVALS if suspects else 0):
            if seconds() - begin > most or _runs_out(series):
                break
            series.interval(-(-count * _FURTHER // _INTERVALS))
        blamed = [suspect for suspect in suspects if suspect.confirmed(series, split)]
        if history.control is not None:
            blamed = [suspect for suspect in blamed if not _is_ours(suspect, history, folder)]
        if not blamed:
            return None, series.units
        return Growth(_told(series, blamed) + _origin(history, blamed[0], folder)), series.units


def _runs_out(series: _Series) -> bool:
    """True if the system might soon run out of files, threads or processes."""
    if series.readings.count < 3 or series.history.keeps:
        return False
    for meter in METERS:
        points = series.readings.points(meter.name)
        if meter.scarce and points[-1][1] - points[0][1] > _SCARCE and points[-1][1] > points[-2][1] > points[-3][1]:
            return True
    return False


@dataclass(frozen=True)
class _Suspect:
    """A meter that rises, or the cost of a unit: `name` is its name in the readings."""

    name: str
    first: Line
    meter: Meter | None = None

    def confirmed(self, series: _Series, split: int) -> bool:
        """True if it continued after the reading number `split`."""
        if self.meter is not None and self.meter.scarce and _runs_out(series):
            return True
        further = series.readings.points(self.name, split - 1)
        if len(further) < _INTERVALS // 2:
            return False
        later = line(last(further))
        if self.meter is not None:
            return goes_on(self.first, later) and later.rise >= self.meter.all and later.slope >= self.meter.each
        points = series.readings.points(self.name)
        slower = points[-1][1] >= _SLOWER * points[1][1]
        return goes_on(self.first, later) and (slower or self.name == _BYTECODES)


def _told(series: _Series, blamed: Sequence[_Suspect]) -> str:
    """The growth in words: leftovers, or else rising costs."""
    history = series.history
    kept = [_kept(series.readings.points(suspect.name), suspect.name) for suspect in blamed if suspect.meter]
    slower = next((suspect for suspect in blamed if suspect.meter is None), None)
    if kept:
        each = f"each {history.unit}"
        if len(history.parts) > 1:
            each = f"a {history.unit} of each of {len(history.parts)} programs"
        told = f"{each} leaves behind {', '.join(kept[:4])}, and it goes on"
        return f"{told}; {_slower(series, slower)}" if slower else told
    return _slower(series, slower) if slower else ""


def _slower(series: _Series, suspect: _Suspect) -> str:
    points = series.readings.points(suspect.name)
    (begin, first), (end, after) = points[1], points[-1]
    scale, unit = (1e6, "us") if suspect.name == _COST else (1, "instructions of Python")
    return (
        f"a {series.history.unit} costs more the more there were before: "
        f"{first * scale:,.0f} {unit} after {begin:,.0f}, "
        f"{after * scale:,.0f} after {end:,.0f} ({after / first:.3g} times)"
    )


def _kept(points: Sequence[tuple[float, float]], name: str) -> str:
    total, units = points[-1][1] - points[0][1], points[-1][0] - points[0][0]
    return f"{_number(line(last(points)).slope)} {name} ({_number(total)} after {_number(units)} times)"


def _suspects(series: _Series) -> Iterator[_Suspect]:
    for meter in () if series.history.keeps else METERS:
        found = line(last(series.readings.points(meter.name)))
        if found.rise >= meter.all and found.slope >= meter.each and found.steady:
            yield _Suspect(meter.name, found, meter)
    for name, least, share, begin in ((_BYTECODES, _FEW, _LONGER, 2), (_COST, _SHORT, _SUSPECTED, 1)):
        points = series.readings.points(name, begin)
        if len(points) < _INTERVALS // 2:  # it ran out of something
            continue
        found = line(points)
        if found.rise >= max(least, share * points[0][1]) and found.steady:
            yield _Suspect(name, found)


def _origin(history: History, suspect: _Suspect, folder: Path) -> str:
    """The programs that it comes from, the objects that are kept, and the places of their allocation."""
    found = []
    meter = suspect.meter
    if len(history.parts) > 1 and meter is not None:
        rates = {part: _rate(history.alone(part), meter, folder) for part in history.parts}
        guilty = {part: rate for part, rate in rates.items() if rate > max(meter.each, 0.2 * max(rates.values()))}
        if guilty:
            texts = [f"{part} {_number(rate)}" for part, rate in guilty.items()]
            found.append(f"by program: {', '.join(texts[:6])}")
    if meter is not None and meter.name in ("Python objects", "bytes of native memory"):
        found += _allocations(history)
    return f" ({'; '.join(found)})" if found else ""


def _is_ours(suspect: _Suspect, history: History, folder: Path) -> bool:
    """True if the suite itself leaves as much behind: a tool that traces each new thread keeps something of it."""
    if suspect.meter is None or history.control is None:
        return False
    own = History(history.unit, dict.fromkeys(history.parts, history.control))
    return _rate(own, suspect.meter, folder) >= _OURS * suspect.first.slope


def _rate(history: History, meter: Meter, folder: Path) -> float:
    series = _Series(history, folder)
    series.unit()
    points = []
    for _ in range(4):
        for _ in range(_ALONE // 4):
            series.unit()
        points.append((float(series.units), state(folder).get(meter.name, 0.0)))
    return line(points).slope


def _allocations(history: History) -> list[str]:
    """Python's part of it: the types that accumulate, and the line that allocates most of it."""
    if tracemalloc.is_tracing():
        return []
    parts = tuple(history.parts.values())

    def units(numbers: range) -> None:
        for number, part in itertools.product(numbers, parts):
            part(number)
        gc.collect()

    tracemalloc.start()
    try:
        units(range(8))
        before = tracemalloc.take_snapshot()
        units(range(8, 8 + _EXPLAINED))
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    types = _types()
    units(range(8 + _EXPLAINED, 8 + 2 * _EXPLAINED))
    more = _types() - types
    found = [f"{number / _EXPLAINED:.1f} {name}" for name, number in more.most_common(3) if number >= _EXPLAINED // 2]
    lines = [item for item in after.compare_to(before, "lineno") if item.count_diff >= _EXPLAINED // 2]
    mine = [item for item in lines if Path(item.traceback[0].filename).parent != Path(__file__).parent]
    places = [f"{Path(item.traceback[0].filename).name}:{item.traceback[0].lineno}" for item in mine[:2]]
    return [*(["of types " + ", ".join(found)] if found else []), *(["made in " + ", ".join(places)] if places else [])]


def _types() -> Counter[str]:
    gc.unfreeze()
    found = Counter(type(item).__name__ for item in gc.get_objects())
    gc.freeze()
    return found


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"
