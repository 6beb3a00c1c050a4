"""Rewrites an edge method after partitioning: what no backend takes and the runtime cannot run is decomposed."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node

from delegatekit_api import MutableState

from ..edge.arguments import nodes_in, substitute
from ..edge.builder import EdgeBuilder, drop_dead, resolve, translating
from ..edge.decompose import Decomposer
from ..edge.draft import Draft
from ..edge.program import EdgeMethod
from ..edge.rules import RULES
from ..edge.sizes import is_size, is_size_node
from .substitutes import SUBSTITUTES


@dataclass(frozen=True)
class Decomposed:
    """A method after some of its nodes were decomposed."""

    edge: EdgeMethod
    #: Node of the method before -> the nodes of this one that it became. A node that could not be decomposed is absent.
    became: Mapping[Node, tuple[Node, ...]]


def decompose_nodes(method: EdgeMethod, nodes: Collection[Node], *, keep: Collection[str]) -> Decomposed:
    """The method with some operators decomposed, as far as they can be.

    Other nodes stay as they are, and operators inside the decompositions that `keep` names stay whole. Graphs of
    control flow are handed on.
    """
    rewrite = _Rewrite(method, nodes, keep)
    with translating(rewrite.builder):
        for node in method.graph.nodes:
            rewrite.translate(node)
    edge = rewrite.finish()
    left = set(edge.graph.nodes) if rewrite.became else ()
    return Decomposed(
        edge, {node: tuple(item for item in created if item in left) for node, created in rewrite.became.items()}
    )


class _Rewrite:
    def __init__(self, method: EdgeMethod, nodes: Collection[Node], keep: Collection[str]) -> None:
        self.method = method
        self.nodes = nodes
        #: Decomposed node -> the nodes that were written for it.
        self.became: dict[Node, list[Node]] = {}
        self.decomposer = Decomposer()
        first = [node.meta.get("val") for node in method.graph.nodes if node.op != "output"]
        self.builder = EdgeBuilder(detect_fake_mode(first), RULES, self.decomposer, resolve(keep))
        self.values: dict[Node, Any] = {}

    def translate(self, node: Node) -> None:
        builder, method = self.builder, self.method
        if node.op == "output":
            return
        if node.op == "placeholder":
            create = builder.input if node in method.inputs else builder.placeholder
            created = create(node.name, node.meta["val"])
            created.meta.update(node.meta)
            if node in method.constants:
                builder.constants.share(created, method.constants, node)
            self.values[node] = node.meta["val"] if is_size(node.meta["val"]) else created
            return
        builder.start(node, node.meta["debug_handle"])
        value = node.meta["val"]
        if is_size_node(node):
            self.values[node] = value  # computed anew where it is used
            return
        known = {item: self.values[item] for item in nodes_in((node.args, node.kwargs))}
        args, kwargs = substitute((node.args, node.kwargs), known)
        if node in method.regions:
            created = builder.append_region_call(node.target, args, value)
            builder.regions[created] = method.regions[node]
            self.values[node] = created
        elif node in self.nodes:
            self.values[node] = self._decompose(node, args, kwargs)
        elif node.target is operator.getitem and isinstance(args[0], tuple):
            self.values[node] = args[0][args[1]]
        else:
            created = builder.emit(node.target, args, kwargs, value)
            if is_size(value):
                builder.sizes.offer(created)
            self.values[node] = value if is_size(value) else created

    def _decompose(self, node: Node, args: Any, kwargs: Any) -> Any:
        last = next(iter(reversed(self.builder.graph.nodes)), None)
        result, decomposed = self._result(node, args, kwargs)
        if decomposed:
            created = itertools.takewhile(lambda item: item is not last, reversed(self.builder.graph.nodes))
            self.became[node] = [item for item in reversed(list(created)) if item.op == "call_function"]
        return result

    def _result(self, node: Node, args: Any, kwargs: Any) -> tuple[Any, bool]:
        """What computes the node's value, and whether that is other operators."""
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

    def finish(self) -> EdgeMethod:
        method, builder = self.method, self.builder

        def renew(item: Any) -> Any:
            value = self.values[item] if isinstance(item, Node) else item
            return builder.sizes.node(value) if is_size(value) else value

        placeholders = dict(zip(_placeholders(method.graph), _placeholders(builder.graph), strict=False))
        buffers = {
            placeholders[node]: MutableState(buffer.name, buffer.initial, renew(buffer.updated))
            for node, buffer in method.buffers.items()
        }
        inputs = tuple(placeholders[node] for node in method.inputs)
        outputs = tuple(renew(item) for item in method.outputs)
        builder.graph.output((*(buffer.updated for buffer in buffers.values()), *outputs))
        constants = drop_dead(builder, keep={*inputs, *buffers})
        structures = (method.input_structure, method.output_structure)
        return EdgeMethod(
            method.name,
            builder.graph,
            constants,
            buffers,
            inputs,
            outputs,
            *structures,
            regions=builder.regions,
            parameters=method.parameters,
        )


def _placeholders(graph: torch.fx.Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "placeholder"]


def _is_still(value: Any, target: Any) -> bool:
    return isinstance(value, Node) and value.target is target
