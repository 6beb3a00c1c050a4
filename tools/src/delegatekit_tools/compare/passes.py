"""Passes judged: the program before each, and after it, evaluated by the referee from the same inputs.

The rest of a comparison holds a lowered program against the graph that all passes leave; here that graph is held
against the model, pass by pass, so that a pass that computes other numbers is named, and its change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegatekit.edge import EdgeMethod, build_edge
from delegatekit.lowering import ChosenBackend
from delegatekit.partition import Asked, Selection
from delegatekit.passes import OwnedPass, apply_passes, given_passes
from delegatekit_api.nodes import describe_node, operator_name, source_line
from delegatekit_toolkit.accuracy import ROUNDOFF, longest_way, shaken, widened
from delegatekit_toolkit.passes import Change, pass_name

from ..arguments import Comparing
from .attainable import accuracy_of, before
from .following import Followed, choices_in, follow
from .judging import measured
from .referee import Values, calls_of, evaluate, given_to, results_of
from .result import JudgedPass, Measured, Operator, Output


@dataclass(frozen=True)
class Judgment:
    """The passes that changed a program, and the results that it has after all of them, if these are other ones."""

    passes: tuple[JudgedPass, ...] = ()
    #: Name of an output or a buffer -> its error against the model.
    results: Mapping[str, Measured] = field(default_factory=dict)

    @property
    def wrong(self) -> Operator | None:
        """The first operator that a pass made something else of; None if there is none."""
        return next((item.operator for item in self.passes if item.operator is not None), None)

    def corrected(self, output: Output) -> Output:
        """An output that was judged against the graph that passes left, against the model."""
        found = self.results.get(output.name.partition(", ")[2] or output.name)
        return output if found is None or not output.measured.right else replace(output, measured=found)


def judged_passes(
    program: ExportedProgram, method: str, given: Comparing, chosen: Mapping[str, ChosenBackend], inputs: Sequence[Any]
) -> Judgment:
    """The passes that change the program, the user's and then those of the backends, each judged by all results."""
    partitioners = {name: choice.backend.create_partitioner(choice.options) for name, choice in chosen.items()}
    descriptions = {name: choice.backend.description for name, choice in chosen.items()}
    keep = Asked.of(partitioners, descriptions, Selection(chosen, given.only, given.skip)).keep
    model = edge = build_edge(program, keep=keep, method=method)
    found = []
    for item in (*given_passes(given.passes), *_of_backends(chosen.values())):
        after, changes = apply_passes(edge, [item], keep)
        if changes:
            found.append(_judged(item, edge, after, changes, inputs, given.tighten))
        edge = after
    results = {}
    if not all(item.measured.right for item in found):
        results = {name: item for name, item in _Pair(model, edge, inputs, given.tighten).results() if not item.right}
    return Judgment(tuple(found), results)


def _of_backends(chosen: Iterable[ChosenBackend]) -> Iterable[OwnedPass]:
    for choice in chosen:
        for item in choice.backend.passes(choice.options):
            yield OwnedPass(item, choice.backend.where)


def _judged(
    item: OwnedPass,
    edge: EdgeMethod,
    after: EdgeMethod,
    changes: Sequence[Change],
    inputs: Sequence[Any],
    tighten: float,
) -> JudgedPass:
    pair = _Pair(edge, after, inputs, tighten)
    worst = max(
        (result for _, result in pair.results()), key=lambda item: (not item.right, item.share), default=Measured()
    )
    name = item.place.removeprefix("pass ")
    if worst.right:
        return JudgedPass(name, len(changes), worst)
    change, node = next(
        ((change, node) for change, node in _places(edge, changes) if not pair.at(node).right), (changes[0], None)
    )
    return JudgedPass(name, len(changes), worst, str(change), _described(item, node, change, worst))


class _Pair:
    """A graph before a pass and after it, with their values in double precision for the same inputs."""

    def __init__(self, edge: EdgeMethod, after: EdgeMethod, inputs: Sequence[Any], tighten: float) -> None:
        self._edge, self._after, self._tighten = edge, after, tighten
        wide = list(map(widened, inputs))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            known = given_to(after, wide)
            self._found: Values = known | evaluate(after, calls_of(after), known)
            torch.manual_seed(0)
            self._followed, self._known = self._follow(wide)

    def results(self) -> list[tuple[str, Measured]]:
        """What each output and buffer is, against what it was, by name."""
        names = [f"output {index}" for index in range(len(self._edge.outputs))]
        names += [f"buffer {buffer.name}" for buffer in self._edge.buffers.values()]
        rows = zip(names, results_of(self._edge), results_of(self._after), strict=True)
        return [
            (name, self._compared(was, now) if isinstance(was, Node) and isinstance(now, Node) else Measured())
            for name, was, now in rows
        ]

    def at(self, node: Node) -> Measured:
        """The value of a node, against that in its place after the pass; right if that has another form."""
        now = _last(self._after, node.meta.get("debug_handle"))
        if now is None or not isinstance(self._found[now], torch.Tensor):
            return Measured()
        value = self._value(node)
        if not isinstance(value, torch.Tensor) or value.shape != self._found[now].shape:
            return Measured()
        return self._compared(node, now)

    def _follow(self, wide: Sequence[Any]) -> tuple[Followed, Values]:
        edge, nodes = self._edge, calls_of(self._edge)
        known, off = (given_to(edge, values) for values in (wide, [shaken(item, ROUNDOFF["float32"]) for item in wide]))
        made = {}
        for node, choice in choices_in(nodes).items():
            now = _last(self._after, choice.meta.get("debug_handle"))
            if now is not None and isinstance(self._found[now], torch.Tensor):
                made[node] = self._found[now]
        return follow(edge, nodes, known, off, made, "float32"), known

    def _value(self, node: Node) -> Any:
        return self._followed.references.get(node, self._known.get(node))

    def _compared(self, was: Node, now: Node) -> Measured:
        dtype, found = was.meta["val"].dtype, self._found[now]
        reference, moved = self._value(was), self._followed.moved.get(was, self._value(was))
        nodes = max(
            (before(node, calls_of(edge)) for edge, node in ((self._edge, was), (self._after, now))), key=longest_way
        )
        accuracy = accuracy_of(self._edge, nodes, {})
        return measured(
            found.to(dtype),
            widened(reference),
            reference.to(dtype),
            "float32",
            accuracy,
            widened(moved),
            self._tighten,
        )


def _last(edge: EdgeMethod, handle: int | None) -> Node | None:
    """The last node that comes from an exported one: it has that one's value."""
    nodes = (node for node in reversed(calls_of(edge)) if node.meta.get("debug_handle") == handle)
    return next(nodes, None) if handle is not None else None


def _places(edge: EdgeMethod, changes: Sequence[Change]) -> list[tuple[Change, Node]]:
    """The changes with the nodes that they replaced, in the order of the graph."""
    by_place = {change.where: change for change in reversed(changes)}
    return [(by_place[place], node) for node in calls_of(edge) if (place := describe_node(node)) in by_place]


def _described(item: OwnedPass, node: Node | None, change: Change, worst: Measured) -> Operator:
    """What a pass replaced, as an operator of the comparison."""
    by = change.by or pass_name(item.run)
    if node is None:
        return Operator((change.where.partition(" ")[0],), "", 0, None, "", "", f"pass {by}", worst)
    stack = node.meta.get("nn_module_stack")
    return Operator(
        (operator_name(node),),
        node.name,
        0,
        node.meta.get("debug_handle"),
        str(next(reversed(stack.values()))[0]) if stack else "",
        source_line(node) or "",
        f"pass {by}",
        worst,
    )
