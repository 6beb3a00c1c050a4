"""Measures, by which the page colors the graph: a number for each operator, and for some delegates as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from delegatekit_api.devices import Estimate

from .graph import Drawing, delegates_of, leaves


@dataclass(frozen=True)
class Measure:
    """Numbers of a drawing's operators."""

    #: Of the choice: "time".
    name: str
    #: "s", "B", "MACs"; "bound" for errors as fractions of their bounds.
    unit: str
    #: A sentence beside the legend.
    note: str
    #: The heading of the list of operators with the largest numbers.
    worst: str
    #: Operator, by its index -> its number.
    values: Mapping[int, float]
    #: Operator -> more about it, in words.
    notes: Mapping[int, str] = field(default_factory=dict)
    #: Delegate, by its index -> its number, where that is not made of those of its operators.
    delegates: Mapping[int, float] = field(default_factory=dict)
    #: True if numbers add up; otherwise a box has the largest of its operators.
    sums: bool = True
    #: True if 1 is a limit, and what is beyond it is wrong.
    limit: bool = False
    #: True for what the page is about: the graph has these colors at first.
    measured: bool = False

    def data(self, texts: Any, count: int) -> dict[str, Any]:
        """The measure for the page's script, of a drawing with `count` operators; `texts` numbers texts."""
        return {
            "name": self.name,
            "unit": self.unit,
            "note": self.note,
            "worst": self.worst,
            "values": [self.values.get(number) for number in range(count)],
            "notes": {number: texts(text) for number, text in self.notes.items()},
            "delegates": dict(self.delegates),
            "sums": self.sums,
            "limit": self.limit,
            "measured": self.measured,
            "hidesZero": not self.measured,
        }


def sizes_of(drawing: Drawing) -> list[Measure]:
    """The measures that are known of every program: multiply-accumulates, weights and results, where there are any."""
    work = {number: item for number, item in enumerate(drawing.operators) if item.row is not None}
    found = [
        Measure(
            "multiply-accumulates",
            "MACs",
            "multiply-accumulates of one call",
            "Most multiply-accumulates",
            {number: item.macs for number, item in work.items()},
        ),
        Measure(
            "weights",
            "B",
            "bytes of the weights that an operator reads, as the program has them",
            "Largest weights",
            {number: item.weights for number, item in work.items()},
        ),
        Measure(
            "results",
            "B",
            "bytes of what an operator makes",
            "Largest results",
            {number: item.size for number, item in work.items()},
        ),
    ]
    return [measure for measure in found if any(measure.values.values())]


def estimated(drawing: Drawing, estimates: Sequence[Estimate | None]) -> Iterator[Measure]:
    """The time on the device that the backends' compilers expect, if there are estimates of delegates.

    A layer has the name of the node that it computes; "node.part" is a part of one.
    """
    values: dict[int, float] = {}
    delegates: dict[int, float] = {}
    for index, (box, estimate) in enumerate(zip(delegates_of(drawing.items), estimates, strict=False)):
        if estimate is None or estimate.latency is None:
            continue
        delegates[index] = estimate.latency
        numbers = {drawing.operators[number].name: number for number in leaves(box.items)}
        for layer in estimate.layers:
            number = numbers.get(layer.name.partition(".")[0])
            if number is not None:
                values[number] = values.get(number, 0.0) + layer.latency
    if delegates:
        note = "estimated for the device by the backends' compilers"
        yield Measure("time on the device", "s", note, "Longest on the device", values, {}, delegates)
