"""The steps of a blob in readable form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from delegatekit_api.blobs import BlobOperator

from ..ir.graph import Argument, Graph, Named, Ref, arguments_of, references
from .form import read_blob


def operators(blob: memoryview) -> list[BlobOperator]:
    """The steps in order. Raises FormatError for a blob with any changed bit."""
    graph = read_blob(blob)
    names = dict(enumerate(_outside(graph)))
    found = []
    for number, step in enumerate(graph.steps, graph.first_step):
        reads = dict.fromkeys(names[item] for argument in arguments_of(step) for item in references(argument))
        arguments = [_text(item, names) for item in step.args]
        arguments += [f"{key}={_text(item, names)}" for key, item in step.kwargs.items()]
        facts = {"arguments": ", ".join(arguments)} if arguments else {}
        names[number] = f"value {number}"
        results = [str(graph.results[place]) for place, output in enumerate(graph.outputs) if output == number]
        if results:
            facts["returned"] = results[0]
        found.append(BlobOperator(step.operator, tuple(reads), (names[number],), facts))
    return found


def _outside(graph: Graph) -> Iterator[str]:
    """The values that no step computes, by number."""
    yield from (f"input {number}" for number in range(len(graph.inputs)))
    yield from (f"constant {number}" for number in range(len(graph.constants)))


def _text(argument: Argument, names: Mapping[int, str]) -> str:
    """An argument: values by name, everything else in Python's notation."""
    if isinstance(argument, tuple):
        return f"[{', '.join(_text(item, names) for item in argument)}]"
    if isinstance(argument, Ref):
        return names[argument.value]
    return argument.name if isinstance(argument, Named) else repr(argument)
