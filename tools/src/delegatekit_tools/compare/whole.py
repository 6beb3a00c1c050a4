"""A lowered method as a whole, not cut apart: its outputs, and its buffers after the call, judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod
from delegatekit.engine import Method, load
from delegatekit.pipeline import LoweredProgram
from delegatekit_api import DelegateKitError
from delegatekit_toolkit.accuracy import ROUNDOFF, shaken, widened

from .attainable import accuracy_of, before, precision_of
from .cut import showing
from .following import Choices, Followed, Trace, choices_in, follow
from .judging import measured, of_choice
from .lowerings import Lowerings
from .referee import Values, calls_of, given_to, results_of
from .result import Output
from .rounds import operands_in, traces
from .running import coarsest_of


@dataclass(frozen=True)
class Whole:
    """A method as it is: its outputs, judged, and remarks on the selections that it was compared along."""

    outputs: tuple[Output, ...]
    remarks: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """True if all outputs are within their bounds."""
        return all(output.measured.right for output in self.outputs)


def method_as_it_is(
    program: LoweredProgram, method: str, inputs: Sequence[Any], values: Values, lowerings: Lowerings, tighten: float
) -> Whole:
    """The method's results for these inputs, from its initial state on; two calls if it updates buffers.

    A buffer that a delegate keeps inside is judged by the results of the second call. If an output is not what PyTorch
    computes, the selections that the program made are read from it, lowered once more with them as outputs, and the
    outputs are judged along those.
    """
    edge = program.methods[method].edge
    calls = 2 if edge.buffers else 1
    with load(program.buffer) as loaded:
        results = [_called(loaded[method], edge, inputs) for _ in range(calls)]
    judge = _Judge(edge, inputs, values, coarsest_of(lowerings.precisions[name] for name in program.backends), tighten)
    found = judge.whole(results, [{}] * calls, [{}] * calls)
    nodes = calls_of(edge)
    returned = {item: place for place, item in enumerate(edge.outputs) if isinstance(item, Node)}
    choices, loops = choices_in(nodes), operands_in(edge, nodes)
    if found.right or not (choices or loops):
        return found
    hidden = [node for node in dict.fromkeys((*choices.values(), *loops)) if node.op == "call_function"]
    hidden = [node for node in hidden if node not in returned]
    try:
        shown = _shown(program, method, inputs, hidden, lowerings, calls) if hidden else [{} for _ in range(calls)]
    except DelegateKitError as error:
        note = f"the program's selections could not be read: {str(error).splitlines()[0]}"
        shown, found = [{} for _ in range(calls)], replace(found, remarks=(note,))
    start, made = given_to(edge, inputs), list[Choices]()
    inside = []
    for call, (own, seen) in enumerate(zip(results, shown, strict=True)):
        seen |= {node: own[place] for node, place in returned.items()}
        made.append({node: seen[choice] for node, choice in choices.items() if choice in seen})
        # Of later calls the buffers are not known here.
        given = {node: value for node, value in start.items() if call == 0 or node not in edge.buffers}
        inside.append(traces(edge, program.methods[method].plan, nodes, {**given, **seen}, lowerings))
    along = judge.whole(results, made, inside)
    return along if along.right else replace(along, remarks=(*found.remarks, *along.remarks))


def _shown(
    program: LoweredProgram,
    method: str,
    inputs: Sequence[Any],
    wanted: Sequence[Node],
    lowerings: Lowerings,
    calls: int,
) -> list[dict[Node, torch.Tensor]]:
    """Values inside the method, call by call: it is lowered once more, with them as outputs."""
    found = []
    with lowerings.loaded(showing(program.partitioned[method], wanted)) as loaded:
        for _ in range(calls):
            results = loaded.run(inputs)[-len(wanted) :]
            found.append({node: result.clone() for node, result in zip(wanted, results, strict=True)})
    return found


class _Judge:
    """Judges the results of calls that follow one another, the referee being in double precision throughout."""

    def __init__(self, edge: EdgeMethod, inputs: Sequence[Any], values: Values, precision: str, tighten: float) -> None:
        self._edge, self._precision, self._tighten = edge, precision, tighten
        roundoff = max(ROUNDOFF["float32"], ROUNDOFF[precision])
        self._wide = list(map(widened, inputs))
        self._moved = [shaken(value, roundoff) for value in self._wide]
        self._nodes = calls_of(edge)
        self._once = accuracy_of(edge, self._nodes, values)

    def whole(
        self, results: Sequence[Sequence[Any]], made: Sequence[Choices], inside: Sequence[Mapping[Node, Trace]]
    ) -> Whole:
        """The results of all calls, along the choices that each made, also inside control flow."""
        state: dict[str, Any] = {buffer.name: widened(buffer.initial) for buffer in self._edge.buffers.values()}
        moved = dict(state)
        outputs: list[Output] = []
        remarks: list[str] = []
        for call, (found, choices, rounds) in enumerate(zip(results, made, inside, strict=True)):
            known, off = given_to(self._edge, self._wide, state), given_to(self._edge, self._moved, moved)
            followed = follow(self._edge, self._nodes, known, off, choices, self._precision, rounds)
            references, shifted = {**known, **followed.references}, {**off, **followed.moved}
            outputs += self._outputs(call, found, followed, references, shifted)
            remarks += [f"compared along the program's own selections: {text} are ties" for text in followed.ties]
            for name, item in ((buffer.name, buffer.updated) for buffer in self._edge.buffers.values()):
                state[name], moved[name] = references[item], shifted[item]
        return Whole(tuple(outputs), tuple(dict.fromkeys(remarks)))

    def _outputs(
        self, call: int, results: Sequence[Any], followed: Followed, references: Values, moved: Values
    ) -> list[Output]:
        once, edge = self._once, self._edge
        accuracy = replace(once, reduction_length=once.reduction_length * (call + 1), steps=once.steps * (call + 1))
        outputs = []
        for name, item, result in zip(_names(edge, call), results_of(edge), results, strict=True):
            if not isinstance(item, Node) or result is None or not isinstance(references[item], torch.Tensor):
                continue  # a literal, or a buffer that a delegate keeps inside
            reference, dtype = references[item], item.meta["val"].dtype
            wide, other = widened(reference), widened(moved[item])
            native = reference.to(dtype)
            precision = precision_of(before(item, self._nodes), self._precision)
            judge = partial(measured, result, wide, native, precision, accuracy, other, self._tighten)
            chosen = followed.of(item) if result.dtype == dtype else None
            outputs.append(Output(name, judge() if chosen is None else of_choice(chosen, judge)))
        return outputs


def _names(edge: EdgeMethod, call: int) -> list[str]:
    """The names of what is judged after a call: outputs, then buffers."""
    prefix = f"call {call + 1}, " if edge.buffers else ""
    found = [f"{prefix}output {index}" for index in range(len(edge.outputs))]
    return found + [f"{prefix}buffer {buffer.name}" for buffer in edge.buffers.values()]


def _called(method: Method, edge: EdgeMethod, inputs: Sequence[Any]) -> list[Any]:
    results = [item.clone() if isinstance(item, torch.Tensor) else item for item in method.run(inputs)]
    state = {name: value.clone() for name, value in method.state.items()}
    return [*results, *(state.get(buffer.name) for buffer in edge.buffers.values())]
