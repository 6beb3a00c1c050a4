"""The methods of a file as graphs of boxes, and the insides of each delegate as a graph of its own.

The insides come from an ETRecord beside the file (its operators, modules and lines); without one, from the plugin
that made the delegate; without that, from the layers of the backend's estimate, which are in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from delegatekit.reading import FileDelegate, FileMethod, FileProgram, open_program
from delegatekit_api.blobs import BlobOperator
from delegatekit_api.devices import Estimate

from ..inspection.insides import insides
from .record import Record, RecordedNode

#: A line of a traceback. A name ends at the next quote, so that a search takes one pass over any text.
_SOURCE: Final = re.compile(r'File "([^"\n]+)", line (\d{1,9})')


@dataclass(frozen=True)
class Box:
    """A node of a graph."""

    id: str
    label: str
    #: Its namespace: "layers/0/attention".
    group: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    #: Boxes whose results it reads.
    reads: tuple[str, ...] = ()
    #: The graph of its insides.
    inside: str | None = None


@dataclass(frozen=True)
class Drawing:
    """A graph: a method, or the insides of a delegate."""

    id: str
    boxes: tuple[Box, ...]


def drawings(path: Path) -> list[Drawing]:
    """The graphs of a .pte or .bpte: each method, and after it each of its delegates with known insides.

    An ETRecord with the file's name (`net.etrecord`) is also read. Raises FormatError for damaged files, but not for
    blobs that a plugin rejects.
    """
    program, beside = open_program(path), path.with_suffix(".etrecord")
    record = Record(beside) if beside.is_file() else None
    found: list[Drawing] = []
    for method in program.methods.values():
        if record is not None:
            record.check(method)
        inside = {
            position: boxes
            for position, instruction in enumerate(method.instructions)
            if instruction.delegate is not None
            and (boxes := _inside(program, record, method.delegates[instruction.delegate], position))
        }
        found.append(_method(method, inside))
        found += [Drawing(_inner(method.name, position), boxes) for position, boxes in inside.items()]
    return found


def _inner(method: str, position: int) -> str:
    return f"{method}, instruction {position}"


def _method(method: FileMethod, inside: Mapping[int, Sequence[Box]]) -> Drawing:
    values = list(map(str, method.values))
    made: dict[int, str] = {}
    boxes = []
    for number, index in enumerate(method.inputs):
        boxes.append(Box(f"input {number}", f"input {number}", facts={"value": values[index]}))
        made[index] = f"input {number}"
    for position, instruction in enumerate(method.instructions):
        facts = {"instruction": str(position)}
        label = instruction.calls
        if instruction.delegate is not None:
            delegate = method.delegates[instruction.delegate]
            facts.update({"made by": delegate.made_by, "blob": f"{len(delegate.blob):,} bytes"})
            label = f"{label}: {delegate.id}"
        facts.update({f"result {number}": values[index] for number, index in enumerate(instruction.writes)})
        reads = tuple(dict.fromkeys(made[index] for index in instruction.reads if index in made))
        opens = _inner(method.name, position) if position in inside else None
        boxes.append(Box(str(position), label, "", facts, reads, opens))
        made.update(dict.fromkeys((*instruction.writes, *instruction.updates), str(position)))
    results = [index for index in method.outputs if index in made]
    boxes.append(Box("outputs", "outputs", reads=tuple(dict.fromkeys(made[index] for index in results))))
    return Drawing(method.name, tuple(boxes))


def _inside(program: FileProgram, record: Record | None, delegate: FileDelegate, position: int) -> tuple[Box, ...]:
    """The insides of the delegate that the instruction at a position calls."""
    nodes = record.inside(delegate.method, position) if record is not None else ()
    if nodes:
        return tuple(_recorded(nodes))
    told = insides(delegate, program.named_data)
    return tuple(_told(told.operators)) or tuple(_layers(delegate.estimate))


def _told(operators: Sequence[BlobOperator]) -> Iterator[Box]:
    """The operators as named by the backend."""
    made = {value: str(number) for number, operator in enumerate(operators) for value in operator.makes}
    for number, operator in enumerate(operators):
        outside = [value for value in operator.reads if value not in made]
        facts = {"makes": ", ".join(operator.makes), "reads from outside": ", ".join(outside), **operator.facts}
        reads = tuple(dict.fromkeys(made[value] for value in operator.reads if value in made))
        yield Box(str(number), operator.name, "", {key: text for key, text in facts.items() if text}, reads)


def _layers(estimate: Estimate | None) -> Iterator[Box]:
    for number, layer in enumerate(estimate.layers if estimate is not None else ()):  # one after the other
        facts = {"operator": layer.operator, "estimate": f"{1e6 * layer.latency:.3f} us"}
        yield Box(str(number), layer.name, "", facts, (str(number - 1),) if number else ())


def _recorded(nodes: Sequence[RecordedNode]) -> Iterator[Box]:
    """The operators as named in the record, grouped by their modules."""
    made = {name: node.name for node in nodes for name in _names(node.outputs)}
    for node in nodes:
        modules = node.metadata.get("nn_module_stack", "").rpartition(";")[2].split(",")
        facts = {"debug handle": node.metadata.get("debug_handle", "")}
        line = _SOURCE.search(node.metadata.get("stack_trace", ""))
        if line is not None:
            facts["source"] = ":".join(line.groups())
        label = node.target.rpartition(".ops.")[2]
        reads = tuple(dict.fromkeys(made[name] for name in _names(node.inputs) if name in made))
        group = modules[1].replace(".", "/") if len(modules) == 3 else ""
        yield Box(node.name, label, group, facts, reads)


def _names(item: Any) -> Iterator[str]:
    """The names of values in arguments or results, at any depth."""
    if isinstance(item, dict):
        for key, value in item.items():
            if key in ("as_tensor", "as_sym_int", "as_sym_bool") and isinstance(value, dict):
                yield str(value.get("name", value.get("as_name")))
            elif key == "as_tensors" and isinstance(value, list):
                yield from (str(part.get("name")) for part in value if isinstance(part, dict))
            else:
                yield from _names(value)
    elif isinstance(item, list | tuple):
        for part in item:
            yield from _names(part)
