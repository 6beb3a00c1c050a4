"""The planned memory of a method over time, as a chart: a rectangle for each value, from its first step to its last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from delegatekit.emit import PlacedValue, PlannedValue, Request, loads
from delegatekit_toolkit.number_text import human_size

from ..report import ArenaReport
from .shell import text
from .tables import Cell, Number, table

#: Units of the chart's own coordinates.
_WIDTH: Final = 1000.0
_HEIGHT: Final = 320.0
#: Parts of the axes.
_TICKS: Final = 4
#: Values that are named in the chart, and the least height of these.
_NAMED: Final = 24
_LINE: Final = 15.0

#: Kinds of values, as the chart's colors tell them apart.
_KINDS: Final = {"input": "inputs", "output": "outputs", "buffer": "kept from call to call", "between": "others"}


def legend() -> Iterator[str]:
    """The meaning of the colors."""
    items = "".join(f'<li class="{kind}"><i></i>{words}</li>' for kind, words in _KINDS.items())
    yield f'<ul class="legend">{items}<li>line: in use</li></ul>'


def chart(arena: ArenaReport, placed: Sequence[PlacedValue]) -> Iterator[str]:
    """The chart of one space, with the values of its peak as a table.

    Steps go from left to right, addresses from the bottom up; the line is the memory in use.
    """
    mine = [item for item in placed if item.memory_id == arena.memory_id and item.value.size]
    told = f"space {arena.space}: {human_size(arena.size)}, least possible {human_size(arena.bound)}"
    yield f"<h4>{text(told)}, most in use at step {arena.peak_step}</h4>"
    if not mine:
        return
    steps = max(item.value.last for item in mine) + 1
    across, up = _WIDTH / steps, _HEIGHT / max(arena.size, 1)
    yield '<div class="memory"><p class="axis-y" aria-hidden="true">'
    yield "".join(f"<span>{human_size(arena.size * part // _TICKS)}</span>" for part in range(_TICKS, -1, -1))
    yield f'</p><svg role="img" aria-label="{text(told)}; the table below shows what is in use at the peak">'
    yield f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none">'
    yield "".join(f'<path class="grid" d="M0 {_HEIGHT * part / _TICKS:g}H{_WIDTH:g}"/>' for part in range(1, _TICKS))
    yield from (_rectangle(item, across, up) for item in mine)
    used = [(0, 0), *loads(Request(item.value.size, item.value.first, item.value.last) for item in mine)]
    points = " ".join(
        f"{step * across:.6g},{_HEIGHT - load * up:.6g} {after * across:.6g},{_HEIGHT - load * up:.6g}"
        for (step, load), (after, _) in pairwise(used)
    )
    peak = (arena.peak_step + 0.5) * across
    yield f'<path class="peak" d="M{peak:.6g} 0V{_HEIGHT:g}"/><polyline points="{points}"/></svg>'
    area = sorted(mine, key=lambda item: (-item.value.size * (item.value.last - item.value.first + 1), item.offset))
    named = [item for item in area[:_NAMED] if item.value.size * up >= _LINE]
    yield from (_name(item, steps, arena.size) for item in named)
    yield "</svg>"
    marks = range(0, steps, max(1, round(steps / _TICKS)))
    words = "".join(f'<text x="{100 * (mark + 0.5) / steps:.4g}%" y="12">{mark}</text>' for mark in marks)
    yield f'<svg class="axis-x" aria-hidden="true">{words}</svg>'
    yield '<p class="axis-title">bytes at their addresses, over steps: the instructions of the method</p></div>'
    rows: list[list[Cell]] = [
        [
            text(value.name),
            Number(value.size, human_size(value.size)),
            text(_type(value)),
            _span(value),
            text(", ".join(value.writers)),
        ]
        for value in arena.peak
    ]
    yield "<details><summary>in use at the peak</summary>"
    yield from table(["value", "size", "type", "steps", "written by"], rows)
    yield "</details>"


def _rectangle(item: PlacedValue, across: float, up: float) -> str:
    value, size = item.value, max(item.value.size * up, 0.5)
    width = (value.last - value.first + 1) * across
    top = _HEIGHT - item.offset * up - size
    return (
        f'<rect class="{_kind(value)}" x="{value.first * across:.6g}" y="{top:.6g}" width="{width:.6g}" '
        f'height="{size:.6g}"><title>{text(_words(value, item.offset))}</title></rect>'
    )


def _name(item: PlacedValue, steps: int, size: int) -> str:
    """The name of a value in its rectangle, which cuts it off."""
    value = item.value
    left, width = 100 * value.first / steps, 100 * (value.last - value.first + 1) / steps
    top, height = 100 * (1 - (item.offset + value.size) / size), 100 * value.size / size
    words = text(f"{value.name} {human_size(value.size)}")
    place = f'x="{left:.5g}%" y="{top:.5g}%" width="{width:.5g}%" height="{height:.5g}%"'
    return f'<svg class="name" {place} aria-hidden="true"><text x="4" y="13">{words}</text></svg>'


def _kind(value: PlannedValue) -> str:
    kinds = {"buffer": value.is_buffer, "input": value.is_input, "output": value.is_output}
    return next((name for name, holds in kinds.items() if holds), "between")


def _words(value: PlannedValue, offset: int) -> str:
    return (
        f"{', '.join(value.names)}\n{_type(value)}, {human_size(value.size)} at {offset}\n"
        f"steps {_span(value)}; written by {', '.join(value.writers)}"
    )


def _type(value: PlannedValue) -> str:
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _span(value: PlannedValue) -> str:
    return f"{value.first} to {value.last}"
