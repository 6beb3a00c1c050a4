"""The planned memory of a method over time, as a chart: a rectangle for each value, from its first step to its last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from delegatekit.emit import PlacedValue, PlannedValue, Request, loads
from delegatekit_toolkit.number_text import human_size

from ..report import ArenaReport
from .shell import text
from .tables import table

#: Units of the chart's own coordinates.
_WIDTH: Final = 1000.0
_HEIGHT: Final = 320.0


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
    yield f'<svg class="memory" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none" role="img" '
    yield f'aria-label="{text(told)}; the table below shows what is in use at the peak">'
    for item in mine:
        value, size = item.value, max(item.value.size * up, 0.5)
        width = (value.last - value.first + 1) * across
        top = _HEIGHT - item.offset * up - size
        yield (
            f'<rect class="{_kind(value)}" x="{value.first * across:.6g}" y="{top:.6g}" width="{width:.6g}" '
            f'height="{size:.6g}"><title>{text(_words(value, item.offset))}</title></rect>'
        )
    used = [(0, 0), *loads(Request(item.value.size, item.value.first, item.value.last) for item in mine)]
    points = " ".join(
        f"{step * across:.6g},{_HEIGHT - load * up:.6g} {after * across:.6g},{_HEIGHT - load * up:.6g}"
        for (step, load), (after, _) in pairwise(used)
    )
    yield f'<polyline points="{points}"/></svg>'
    yield f'<p class="axis"><span>step 0</span><span>step {steps - 1}</span></p>'
    rows = [
        [text(value.name), human_size(value.size), text(_type(value)), _span(value), text(", ".join(value.writers))]
        for value in arena.peak
    ]
    yield "<details><summary>in use at the peak</summary>"
    yield from table(["value", "size", "type", "steps", "written by"], rows, numbers=(1,))
    yield "</details>"


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
