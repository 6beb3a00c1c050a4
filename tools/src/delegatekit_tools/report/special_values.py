"""Special values: inputs for which delegates give other results than PyTorch, as their backends declare them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.lowering import Delegate, LoweredMethod, Replacement, partition_program
from delegatekit.pipeline import LoweredProgram

#: Backend -> declaration, in words -> the operators in its delegates that it is about, and how often they occur.
SpecialValues = Mapping[str, Mapping[str, Mapping[str, int]]]
#: The declarations of a backend, and the operators of one, that are written out.
_SHOWN = 3


def special_values(program: LoweredProgram) -> SpecialValues:
    """What the backends declare about the calls in their delegates; nothing of those that declare nothing."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    tellers: dict[str, Any] = {}
    for name, method in program.methods.items():
        for edge, part in _parts(method):
            chosen = part.chosen
            if chosen.backend.name not in tellers:
                partitioner = chosen.backend.create_partitioner(chosen.options)
                tellers[chosen.backend.name] = getattr(partitioner, "special_values", None)
            tell = tellers[chosen.backend.name]
            if tell is None:
                continue
            for call in partition_program(edge, part.partition, 0, name).view.calls():
                said = tell(call)
                if isinstance(said, str) and said.strip():
                    found[chosen.backend.name][said][call.operator] += 1
    return {backend: {said: dict(counts) for said, counts in kinds.items()} for backend, kinds in found.items()}


def _parts(method: LoweredMethod) -> Iterator[tuple[EdgeMethod, Delegate | Replacement]]:
    """What backends run, those inside control flow included, with the graph that holds it and its constants."""
    for step in method.steps:
        if not isinstance(step, Node):
            yield method.edge, step
            continue
        for region in method.regions.get(step, ()):
            yield from _parts(region)


def special_value_lines(found: SpecialValues) -> Iterator[str]:
    """The most frequent declarations of each backend."""
    for backend, kinds in found.items():
        yield f"{backend} gives other results than PyTorch for special values:"
        frequent = sorted(kinds.items(), key=lambda item: -sum(item[1].values()))
        for said, counts in frequent[:_SHOWN]:
            names = [f"{name} x{count}" for name, count in Counter(counts).most_common(_SHOWN)]
            more = [f"{len(counts) - _SHOWN} more"] if len(counts) > _SHOWN else []
            yield f"  {', '.join(names + more)}: {said}"
        if len(frequent) > _SHOWN:
            yield f"  and {len(frequent) - _SHOWN} more kinds"
