"""A method as its file has it, as a graph to draw: instructions, and what is known of the insides of delegates.

Arrows are those between instructions. Of the operators inside a delegate only the order is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from delegatekit.reading import FileMethod
from delegatekit_toolkit.source_paths import short_source

from ..report.rows import ExplainRow
from .graph import DELEGATE, Box, Drawing, Item, Leaf, Operator, nested


@dataclass(frozen=True)
class Part:
    """An operator, as far as it is known."""

    operator: str
    modules: Sequence[str] = ()
    sources: Sequence[str] = ()


@dataclass(frozen=True)
class Step:
    """An instruction: a call of a kernel, or of a delegate with its operators."""

    position: int
    #: "aten::add.out", "delegate 0".
    calls: str
    #: The maker of the called delegate; empty for others.
    made_by: str
    part: Part
    inside: Sequence[Part] = ()


@dataclass
class Contents:
    """The drawing of a method, and the places of its instructions in it."""

    drawing: Drawing
    #: Position of an instruction -> the operators that stand for it, by their indices.
    operators: Mapping[int, Sequence[int]]
    #: Position of an instruction -> the delegate that it calls.
    delegates: Mapping[int, int]
    notes: list[str] = field(default_factory=list)


def contents(name: str, steps: Iterable[Step], method: FileMethod | None = None) -> Contents:
    """The drawing of a method of these instructions; with the method of the file, with its arrows, too."""
    operators: list[Operator] = []
    before: list[Item] = []
    items: list[Item] = []
    places: dict[int, list[int]] = {}
    delegates: dict[int, int] = {}
    made: dict[int, int] = {}
    for number, index in enumerate(method.inputs if method is not None else ()):
        made[index] = len(operators)
        before.append(Leaf(len(operators)))
        operators.append(Operator(f"input {number}", None, "input", str(method.values[index]) if method else ""))
    arrows: dict[tuple[int, int], None] = {}
    for step in steps:
        parts = step.inside or (step.part,)
        numbers = [len(operators) + place for place in range(len(parts))]
        operators += [_operator(name, step, place, part, method) for place, part in enumerate(parts)]
        places[step.position] = numbers
        found = [Leaf(number, operators[number].path) for number in numbers]
        if step.calls.startswith("delegate "):
            delegates[step.position] = int(step.calls.partition(" ")[2])
            path = _operator(name, step, 0, step.part, method).path
            items.append(Box(step.made_by, DELEGATE, tuple(nested(found)), path, delegates[step.position]))
        else:
            items += found
        if method is None:
            continue
        instruction = method.instructions[step.position]
        arrows |= dict.fromkeys((made[index], numbers[0]) for index in instruction.reads if index in made)
        made.update(dict.fromkeys((*instruction.writes, *instruction.updates), numbers[-1]))
    items = [*before, *nested(items)]
    if method is not None:
        last = len(operators)
        operators.append(Operator("output", None, "output", "; ".join(str(method.values[it]) for it in method.outputs)))
        items.append(Leaf(last))
        arrows |= dict.fromkeys((made[index], last) for index in method.outputs if index in made)
    drawing = Drawing(name, tuple(operators), tuple(arrow for arrow in arrows if arrow[0] < arrow[1]), tuple(items))
    notes = [""] * (max(delegates.values(), default=-1) + 1)
    return Contents(drawing, places, delegates, notes)


def _operator(name: str, step: Step, place: int, part: Part, method: FileMethod | None) -> Operator:
    node = f"{step.position}.{place}: {part.operator}" if step.inside else f"{step.position}: {part.operator}"
    kernel = None if step.made_by else step.calls
    row = ExplainRow(
        name,
        node,
        part.operator,
        _common(part.modules),
        "; ".join(map(short_source, part.sources)),
        step.made_by or None,
        kernel,
        {},
    )
    values = ""
    if method is not None and not step.inside:
        values = "; ".join(str(method.values[index]) for index in method.instructions[step.position].writes)
    return Operator(node, row, "operator", values)


def _common(modules: Sequence[str]) -> str:
    """The module that contains all of these."""
    if not modules:
        return ""
    first, *others = (module.split(".") for module in modules)
    for other in others:
        same = [one == two for one, two in zip(first, other, strict=False)]
        first = first[: same.index(False) if False in same else len(same)]
    return ".".join(first)
