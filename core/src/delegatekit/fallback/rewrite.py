"""Decomposes, after partitioning, the operators of an edge method that no backend takes and the runtime cannot run."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from ..edge.draft import Draft
from ..edge.program import EdgeMethod
from ..edge.rewrite import Rewrite
from .substitutes import SUBSTITUTES


@dataclass(frozen=True)
class Decomposed:
    """A method after some of its nodes were decomposed."""

    edge: EdgeMethod
    #: Node of the method before -> the nodes of this one that it became. A node that could not be decomposed is absent.
    became: Mapping[Node, tuple[Node, ...]]


def decompose_nodes(method: EdgeMethod, nodes: Collection[Node], *, keep: Collection[str]) -> Decomposed:
    """The method with some operators decomposed, as far as they can be.

    Other nodes are unchanged, and operators inside the decompositions that `keep` names are not decomposed. Graphs of
    control flow are passed on.
    """
    rewrite = _Decompose(method, nodes, keep)
    edge = rewrite.rewritten()
    left = set(edge.graph.nodes) if rewrite.became else ()
    return Decomposed(
        edge, {node: tuple(item for item in created if item in left) for node, created in rewrite.became.items()}
    )


class _Decompose(Rewrite):
    def __init__(self, method: EdgeMethod, nodes: Collection[Node], keep: Collection[str]) -> None:
        super().__init__(method, keep)
        self.nodes = nodes
        #: Decomposed node -> the nodes written for it.
        self.became: dict[Node, list[Node]] = {}

    def call(self, node: Node, args: Any, kwargs: Any) -> Any:
        if node not in self.nodes:
            return super().call(node, args, kwargs)
        last = next(iter(reversed(self.builder.graph.nodes)), None)
        result, decomposed = self._result(node, args, kwargs)
        if decomposed:
            created = itertools.takewhile(lambda item: item is not last, reversed(self.builder.graph.nodes))
            self.became[node] = [item for item in reversed(list(created)) if item.op == "call_function"]
        return result

    def _result(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """The nodes that compute the node's value, and True if they are other operators."""
        target: Any = node.target
        substitute_for = SUBSTITUTES.rule(target)
        if substitute_for is not None:
            result = substitute_for(self.builder, Draft(target, args, kwargs, node.meta["val"]))
            if result is not NotImplemented:
                return result, True
        result = self.builder.decompose(target, args, kwargs, node.meta["val"])
        if _is_still(result, target):
            further = self.decomposer.last_resort(self.builder, target, args, kwargs)
            result = result if further is NotImplemented else further
        return result, not _is_still(result, target)


def _is_still(value: Any, target: Any) -> bool:
    return isinstance(value, Node) and value.target is target
