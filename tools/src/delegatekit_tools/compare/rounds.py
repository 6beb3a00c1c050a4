"""The selections inside control flow: its graphs are lowered by themselves, and run one after another as the call does.

What a delegate inside a loop chose shows in no result of the loop. Each graph is lowered with its choices as outputs,
and its results are the inputs of the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch.fx import Node, map_arg

from delegatekit.edge import EdgeMethod
from delegatekit.engine import Method
from delegatekit.partition import PartitionedMethod, PartitionPlan
from delegatekit_api import DelegateKitError

from .cut import showing
from .following import Choices, Round, Trace, choices_in
from .lowerings import Lowerings
from .referee import calls_of, kind_of

#: Rounds of a loop that are followed.
_MOST: Final = 10_000


def operands_in(edge: EdgeMethod, nodes: Sequence[Node]) -> list[Node]:
    """The values that calls of control flow read which select something inside."""
    found = [item for node in nodes if _selects(edge, node) for item in node.all_input_nodes]
    return list(dict.fromkeys(found))


def traces(
    edge: EdgeMethod, plan: PartitionPlan, nodes: Sequence[Node], values: Mapping[Node, Any], lowerings: Lowerings
) -> dict[Node, Trace]:
    """Call of control flow -> the choices that its graphs make, round by round, from these values of its operands.

    A call is left out whose operands are unknown, or whose graphs cannot be lowered so.
    """
    found = {}
    for node in nodes:
        if not _selects(edge, node) or any(item not in values for item in node.all_input_nodes):
            continue
        with ExitStack() as stack:
            try:
                graphs = [
                    _Opened(region, part, stack, lowerings)
                    for region, part in zip(edge.regions[node], plan.regions[node], strict=True)
                ]
                found[node] = tuple(_run(node, graphs, map_arg(node.args, values.__getitem__)))
            except DelegateKitError:  # they cannot be read
                continue
    return {node: trace for node, trace in found.items() if len(trace) < _MOST}


class _Opened:
    """A graph of control flow, lowered by itself, whose choices are outputs."""

    def __init__(self, edge: EdgeMethod, plan: PartitionPlan, stack: ExitStack, lowerings: Lowerings) -> None:
        self._nodes = choices_in(calls_of(edge))
        self._count = len(edge.outputs)
        shown = showing(PartitionedMethod(edge, plan), list(self._nodes.values()))
        self._method: Method = stack.enter_context(lowerings.loaded(shown))

    def run(self, inputs: Sequence[Any]) -> tuple[list[Any], Choices]:
        """The graph's results, and the choices that it made."""
        found = [item.clone() if isinstance(item, torch.Tensor) else item for item in self._method.run(inputs)]
        return found[: self._count], dict(zip(self._nodes, found[self._count :], strict=True))


def _run(node: Node, graphs: Sequence[_Opened], args: Any) -> Iterator[Round]:
    name = kind_of(node)
    if name == "cond":
        predicate, _, operands = args
        branch = 0 if bool(predicate) else 1
        yield Round(branch, graphs[branch].run(list(operands))[1])
        return
    first, operands = args
    if name != "while_loop":
        for row in range(first[0].shape[0]):
            yield Round(0, graphs[0].run([*(item[row] for item in first), *operands])[1])
        return
    state = list(first)
    for _ in range(_MOST // 2):
        (going, *_), choices = graphs[0].run([*state, *operands])
        yield Round(0, choices)
        if not bool(going):
            return
        state, choices = graphs[1].run([*state, *operands])
        yield Round(1, choices)


def _selects(edge: EdgeMethod, node: Node) -> bool:
    return any(choices_in(calls_of(region)) for region in edge.regions.get(node, ()))
