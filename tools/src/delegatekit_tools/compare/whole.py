"""A lowered method as a whole, not cut apart: its outputs, and its buffers after the call, judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.engine import Method, load
from delegatekit.pipeline import LoweredProgram
from delegatekit_toolkit.accuracy import ROUNDOFF, shaken, widened

from .judging import accuracy_of, measured
from .referee import Values, outputs_of
from .result import Output
from .running import Lowerings, coarsest_of


def outputs_as_they_are(
    program: LoweredProgram, method: str, inputs: Sequence[Any], values: Values, lowerings: Lowerings, tighten: float
) -> tuple[Output, ...]:
    """The method's results for these inputs, from its initial state on; two calls if it updates buffers.

    A buffer that a delegate keeps inside is judged by the results of the second call.
    """
    edge = program.methods[method].edge
    coarsest = coarsest_of(lowerings.precisions[name] for name in program.backends)
    roundoff = max(ROUNDOFF["float32"], ROUNDOFF[coarsest])
    calls = 2 if edge.buffers else 1
    wide = list(map(widened, inputs))
    references = _references(edge, wide, calls)
    moved = _references(edge, [shaken(value, roundoff) for value in wide], calls)
    with load(program.buffer) as loaded:
        results = [_called(loaded[method], edge, inputs) for _ in range(calls)]
    once = accuracy_of(edge, [node for node in edge.graph.nodes if node.op == "call_function"], values)
    found = []
    for call in range(calls):
        accuracy = replace(once, reduction_length=once.reduction_length * (call + 1), steps=once.steps * (call + 1))
        rows = zip(_named(edge, call), results[call], references[call], moved[call], strict=True)
        for (name, item), result, reference, other in rows:
            if not isinstance(item, Node) or result is None or not isinstance(reference, torch.Tensor):
                continue  # a literal, or a buffer that a delegate keeps inside
            native = reference.to(item.meta["val"].dtype)
            judged = measured(result, widened(reference), native, coarsest, accuracy, widened(other), tighten)
            found.append(Output(name, judged))
    return tuple(found)


def _named(edge: EdgeMethod, call: int) -> list[tuple[str, Any]]:
    """The values to judge after a call, by name: outputs, then buffers."""
    prefix = f"call {call + 1}, " if edge.buffers else ""
    found = [(f"{prefix}output {index}", item) for index, item in enumerate(edge.outputs)]
    return found + [(f"{prefix}buffer {buffer.name}", buffer.updated) for buffer in edge.buffers.values()]


def _called(method: Method, edge: EdgeMethod, inputs: Sequence[Any]) -> list[Any]:
    results = [item.clone() if isinstance(item, torch.Tensor) else item for item in method.run(inputs)]
    state = {name: value.clone() for name, value in method.state.items()}
    return [*results, *(state.get(buffer.name) for buffer in edge.buffers.values())]


def _references(edge: EdgeMethod, inputs: Sequence[Any], calls: int) -> list[list[Any]]:
    state = {buffer.name: widened(buffer.initial) for buffer in edge.buffers.values()}
    found = []
    for _ in range(calls):
        found.append(outputs_of(edge, inputs, state))
        state = dict(zip(state, found[-1][len(edge.outputs) :], strict=True))
    return found
