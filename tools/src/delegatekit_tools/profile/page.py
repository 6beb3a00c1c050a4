"""A profile as a page: the graph of the method, colored by the time of each instruction and operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Protocol

from delegatekit.reading import FileMethod
from delegatekit_toolkit.number_text import human_size, human_time
from delegatekit_toolkit.source_paths import short_source

from ..page import framed
from ..page.cards import Card, takers_of
from ..page.contents import Contents, Part, Step, contents
from ..page.drawing import graph_data
from ..page.graph import Drawing
from ..page.measures import Measure
from ..page.shell import text
from ..page.tables import Cell, Number, table
from ..text import summary
from .measured import InstructionProfile, Origin, Times
from .text import times_of


class Found(Protocol):
    """The facts of a profile that the page shows (`Profile`)."""

    @property
    def method(self) -> str:
        """Its name."""

    @property
    def total(self) -> Times:
        """Whole calls."""

    @property
    def warm_up(self) -> Times:
        """Those before them."""

    @property
    def instructions(self) -> tuple[InstructionProfile, ...]:
        """Their times, in order."""

    @property
    def recorded(self) -> str:
        """The file that records the calls, if they were not measured here."""

    @property
    def load(self) -> Times:
        """The load times of the method, if recorded."""

    @property
    def measured(self) -> Times:
        """Calls whose instructions were measured."""


def page(found: Found, title: str, method: FileMethod | None = None) -> str:
    """The page of a profile; with the method of its file the graph has arrows."""
    made = contents(found.method, map(_step, found.instructions), method)
    for item in found.instructions:
        if item.position in made.delegates and item.estimate is not None:
            estimated = summary(item.estimate)
            made.notes[made.delegates[item.position]] = f"estimated on the device: {estimated}" if estimated else ""
    where = f"recorded in {PurePath(found.recorded).name}" if found.recorded else "on this machine"
    told = [f"Method {found.method}: {times_of(found.total)} a call, {len(found.total.wall)} calls {where}."]
    sections = {"Instructions and operators": _rows(found)}
    return framed(
        title,
        told,
        _cards(found, made.drawing),
        sections,
        graph_data([made.drawing], [made.notes], [list(_measures(found, made))]),
    )


def _step(item: InstructionProfile) -> Step:
    origin = item.origin
    part = Part(item.calls, origin.modules, origin.sources)
    inside = [Part(each.name, each.origin.modules, each.origin.sources) for each in item.operators]
    if not inside and item.estimate is not None:
        inside = [Part(layer.operator) for layer in item.estimate.layers]
    made_by = item.made_by or ("a backend" if item.calls.startswith("delegate ") else "")
    return Step(item.position, item.calls, made_by, part, inside)


def _measures(found: Found, made: Contents) -> Iterator[Measure]:
    values: dict[int, float] = {}
    notes: dict[int, str] = {}
    delegates: dict[int, float] = {}
    expected: dict[int, float] = {}
    layers: dict[int, float] = {}
    for item in found.instructions:
        numbers = made.operators[item.position]
        index = made.delegates.get(item.position)
        if index is not None:
            delegates[index] = delegates.get(index, 0.0) + item.times.median
        if item.operators:
            values.update(zip(numbers, (each.times.median for each in item.operators), strict=True))
            notes.update(zip(numbers, (_spread(each.times) for each in item.operators), strict=True))
        elif len(numbers) == 1:
            values[numbers[0]], notes[numbers[0]] = item.times.median, _spread(item.times)
        if item.estimate is None or index is None:
            continue
        if item.estimate.latency is not None:
            expected[index] = item.estimate.latency
        if not item.operators and item.estimate.layers:
            layers.update(zip(numbers, (layer.latency for layer in item.estimate.layers), strict=True))
    calls = len(found.measured.wall)
    yield Measure(
        "time",
        "s",
        f"median of {calls} calls" + (", recorded on a device" if found.recorded else " on this machine"),
        "Longest",
        values,
        notes,
        delegates,
        measured=True,
    )
    if expected:
        note = "estimated for the device by the backends' compilers"
        yield Measure("time on the device", "s", note, "Longest on the device", layers, {}, expected)


def _spread(times: Times) -> str:
    return f"spread {human_time(times.spread)}" if times.wall else ""


def _cards(found: Found, drawing: Drawing) -> Iterator[Card]:
    lines = [("", f"spread {human_time(found.total.spread)}"), ("", f"median of {len(found.total.wall)} calls")]
    if found.total.median_cpu is not None:
        lines.append(("", f"{human_time(found.total.median_cpu)} CPU"))
    yield Card("A call", human_time(found.total.median), lines)
    runners: dict[str, float] = {}
    for item in found.instructions:
        name = _step(item).made_by or "the runtime"
        runners[name] = runners.get(name, 0.0) + item.times.median
    ordered = sorted(runners.items(), key=lambda pair: -pair[1])
    colors = takers_of([drawing])
    parts = [(colors.get(name, "runtime"), seconds) for name, seconds in ordered]
    whole = sum(runners.values()) or 1.0
    words = [f"{name}: {human_time(seconds)}, {100 * seconds / whole:.1f} %" for name, seconds in ordered]
    lines = [(color, said) for (color, _), said in zip(parts, words, strict=True)]
    delegated = sum(seconds for name, seconds in ordered if name != "the runtime")
    yield Card("Time in delegates", f"{100 * delegated / whole:.1f} %", lines, parts)
    longest = max(found.instructions, key=lambda item: item.times.median, default=None)
    if longest is not None:
        lines = [("", f"{longest.position}: {longest.calls}"), *(("", module) for module in longest.origin.modules[:2])]
        yield Card("Longest instruction", human_time(longest.times.median), lines)
    if found.warm_up.wall:
        others = [("", human_time(seconds)) for seconds in found.warm_up.wall[1:]]
        yield Card("First calls", human_time(found.warm_up.wall[0]), others)
    if found.load.wall:
        yield Card("Load", human_time(found.load.median))
    estimates = [item.estimate for item in found.instructions if item.estimate is not None]
    latencies = [estimate.latency for estimate in estimates if estimate.latency is not None]
    if latencies:
        memory: dict[str, int] = {}
        for estimate in estimates:
            for name, size in estimate.memory.items():
                memory[name] = max(memory.get(name, 0), size)
        sizes = [("", f"{name} {human_size(size)}") for name, size in memory.items() if size]
        yield Card("Estimated on the device", human_time(sum(latencies)), [("", estimates[0].source), *sizes])


def _rows(found: Found) -> Iterator[str]:
    heads = ["share", "time", "spread", "CPU", "what", "module", "source"]
    whole = found.measured.median or 1.0
    rows: list[Sequence[Cell]] = []
    for item in found.instructions:
        made_by = f" ({item.made_by})" if item.made_by else ""
        rows.append(_row(f"{item.position}: {item.calls}{made_by}", item.times, item.origin, whole))
        rows += [
            _row(f"{item.position}.{index}: {each.name}", each.times, each.origin, whole)
            for index, each in enumerate(item.operators)
        ]
    yield from table(heads, rows)


def _row(what: str, times: Times, origin: Origin, whole: float) -> list[Cell]:
    share = 100 * times.median / whole
    return [
        Number(share, f"{share:.1f} %"),
        Number(times.median, human_time(times.median)),
        Number(times.spread, human_time(times.spread)),
        "" if times.median_cpu is None else Number(times.median_cpu, human_time(times.median_cpu)),
        text(what),
        text("; ".join(origin.modules)),
        text("; ".join(short_source(source).partition(": `")[0] for source in origin.sources)),
    ]
