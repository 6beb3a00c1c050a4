"""The latency plot: time on the backend against eager, both axes logarithmic, as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from . import views
from .text import clean

_WIDTH, _HEIGHT = 640, 560
_LEFT, _RIGHT, _TOP, _BOTTOM = 72, 36, 32, 54
#: More points would make the page large without more information: the slowest against eager stay.
_POINTS = 1000
#: Number of series with a color and a shape of their own.
SERIES = 4


@dataclass(frozen=True)
class _Axis:
    """Seconds, as powers of ten, to pixels."""

    low: int
    high: int
    start: float
    end: float

    def place(self, seconds: float) -> float:
        part = (math.log10(seconds) - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * part


def swatch(series: int) -> Markup:
    """The marker of a series, for a legend."""
    shape = _shape(series, 7, 7)
    return Markup('<svg class="swatch" viewBox="0 0 14 14" aria-hidden="true">{}</svg>').format(shape)


def plot(series: Sequence[tuple[str, Sequence[views.Latency]]]) -> Markup:
    """The plot of some named series; empty if there is no point."""
    points = [point for _, latencies in series for point in latencies]
    if not points:
        return Markup("")
    times = [time for point in points for time in (point.eager, point.backend)]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    x = _Axis(low, high, _LEFT, _WIDTH - _RIGHT)
    y = _Axis(low, high, _HEIGHT - _BOTTOM, _TOP)
    label = "Time of one run on the backend against torch eager, for each case; both axes are logarithmic."
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(_WIDTH, _HEIGHT, label)
    parts = [head, *_grid(x, y)]
    for number, (name, latencies) in enumerate(series):
        parts += _points(number, name if len(series) > 1 else "", latencies[:_POINTS], x, y)
    return Markup("\n").join([*parts, Markup("</svg>")])


def _grid(x: _Axis, y: _Axis) -> Iterable[Markup]:
    line = Markup('<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    for power in range(x.low, x.high + 1):
        name = views.duration(10.0**power)
        column, row = x.place(10.0**power), y.place(10.0**power)
        yield line.format("grid", column, y.start, column, y.end)
        yield line.format("grid", x.start, row, x.end, row)
        yield text.format(column, y.start + 20, "middle", name)
        yield text.format(x.start - 8, row + 4, "end", name)
    for factor, words in ((10, "10 × slower"), (0.1, "10 × faster")):
        if x.high - x.low < 2:
            break
        eager = (10.0**x.low, 10.0 ** (x.high - 1)) if factor > 1 else (10.0 ** (x.low + 1), 10.0**x.high)
        ends = [(x.place(time), y.place(time * factor)) for time in eager]
        yield line.format("side", *ends[0], *ends[1])
        at = ends[1] if factor > 1 else ends[0]
        shift = (-6, 14, "end") if factor > 1 else (6, -8, "start")
        yield text.format(at[0] + shift[0], at[1] + shift[1], shift[2], words)
    yield line.format("equal", x.start, y.start, x.end, y.end)
    yield text.format((x.start + x.end) / 2, y.start + 44, "middle", "eager →")
    yield text.format(x.start, y.end - 14, "start", "backend ↑")


def _points(number: int, name: str, latencies: Sequence[views.Latency], x: _Axis, y: _Axis) -> Iterable[Markup]:
    template = Markup('<g class="point s{}">{}<title>{}</title></g>')
    for point in latencies:
        where = f"{name}: {point.case}" if name else point.case
        times = f"{views.duration(point.backend)}, eager {views.duration(point.eager)}"
        title = f"{clean(where)}\n{times} ({ratio(point.ratio)})"
        yield template.format(number % SERIES, _shape(number, x.place(point.eager), y.place(point.backend)), title)


def ratio(value: float) -> str:
    """A ratio to eager in words: "2.3 × slower"."""
    if 0.95 < value < 1.05:
        return "as fast as eager"
    return f"{value:.3g} × slower" if value > 1 else f"{1 / value:.3g} × faster"


def _shape(series: int, x: float, y: float) -> Markup:
    kind = series % SERIES
    if kind == 0:
        return Markup('<circle class="s0" cx="{:.1f}" cy="{:.1f}" r="4.5"/>').format(x, y)
    corners = {
        1: ((0, -5.5), (5, 4), (-5, 4)),
        2: ((-4.2, -4.2), (4.2, -4.2), (4.2, 4.2), (-4.2, 4.2)),
        3: ((0, -6), (6, 0), (0, 6), (-6, 0)),
    }[kind]
    places = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return Markup('<polygon class="s{}" points="{}"/>').format(kind, escape(places))
