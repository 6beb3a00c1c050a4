"""Drawings as the page's script reads them: JSON in which each text occurs once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .graph import MODULE, Drawing, Item, Leaf, Operator
from .measures import Measure
from .shell import printable


@dataclass
class _Texts:
    """Texts by index."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(printable(text), len(self.numbers))


def graph_data(
    drawings: Sequence[Drawing],
    notes: Sequence[Sequence[str]],
    measures: Sequence[Sequence[Measure]],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """The data for the script. `notes` has for each drawing a text for each of its delegates; `measures` its measures.

    `names` are those of the drawings, where they are not the names of their methods.

    An operator is a list: name, kind, operator, module, source line, taker, kernel, values, multiply-accumulates, and
    pairs of backend and reason for refusing it; texts are indices into `texts`. An arrow is two operator indices in
    `arrows`. An item is the index of an operator, or a box.
    """
    texts = _Texts()
    methods = [
        {
            "name": name,
            "operators": [_operator(item, texts) for item in drawing.operators],
            "arrows": [number for arrow in drawing.arrows for number in arrow],
            "items": [_item(item, texts) for item in drawing.items],
            "notes": list(said),
            "measures": [measure.data(texts.number, len(drawing.operators)) for measure in found],
        }
        for drawing, said, found, name in zip(
            drawings, notes, measures, names or [drawing.method for drawing in drawings], strict=True
        )
    ]
    return {"texts": list(texts.numbers), "methods": methods}


def _operator(item: Operator, texts: _Texts) -> list[Any]:
    row = item.row
    said = ("", "", "", "", "") if row is None else _said(row.operator, row.module, row.source, row.backend, row.kernel)
    reasons = [] if row is None else [texts.number(text) for pair in row.reasons.items() for text in pair]
    numbers = map(texts.number, (item.name, item.kind, *said, item.values))
    return [*numbers, item.macs, reasons]


def _said(*parts: str | None) -> tuple[str, ...]:
    return tuple(part or "" for part in parts)


def _item(item: Item, texts: _Texts) -> Any:
    if isinstance(item, Leaf):
        return item.number
    box: dict[str, Any] = {"label": texts.number(item.label), "items": [_item(inner, texts) for inner in item.items]}
    if item.kind != MODULE:
        box["kind"] = item.kind
    if item.delegate is not None:
        box["delegate"] = item.delegate
    return box
