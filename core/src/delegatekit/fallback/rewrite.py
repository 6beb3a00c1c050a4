"""Rewrites an edge method after partitioning: what nobody runs whole is decomposed after all."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node

from delegatekit_api import MutableState

from ..edge.arguments import nodes_in, substitute
from ..edge.builder import Builder, drop_dead, resolve
from ..edge.decompose import Decomposer
from ..edge.program import EdgeMethod
from ..edge.rules import CHECKS, RULES
from ..edge.sizes import is_size, is_size_node, no_guards
from .substitutes import SUBSTITUTES


def decompose_nodes(method: EdgeMethod, nodes: Collection[Node], *, keep: Collection[str]) -> tuple[EdgeMethod, bool]:
    """The method with some operators decomposed, because nobody runs them whole; and whether any was.

    Other nodes stay as they are, and operators inside the decompositions that `keep` names stay whole. Graphs of
    control flow are handed on.
    """
    rewrite = _Rewrite(method, nodes, keep)
    with no_guards(rewrite.builder):
        for node in method.graph.nodes:
            rewrite.translate(node)
    return rewrite.finish(), rewrite.decomposed


class _Rewrite:
    def __init__(self, method: EdgeMethod, nodes: Collection[Node], keep: Collection[str]) -> None:
        self.method = method
        self.nodes = nodes
        self.decomposed = False
        self.decomposer = Decomposer()
        first = [node.meta.get("val") for node in method.graph.nodes if node.op != "output"]
        self.builder = Builder(detect_fake_mode(first), RULES, CHECKS, self.decomposer, resolve(keep))
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
                builder.constants[created] = method.constants[node]
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
        target: Any = node.target
        substitute_for = SUBSTITUTES.get(target)
        if substitute_for is not None:
            result = substitute_for(self.builder, args, kwargs, node.meta["val"])
            if result is not NotImplemented:
                self.decomposed = True
                return result
        result = self.builder.decompose(target, args, kwargs, node.meta["val"])
        if _is_still(result, target):
            further = self.decomposer.last_resort(self.builder, target, args, kwargs)
            result = result if further is NotImplemented else further
        self.decomposed |= not _is_still(result, target)
        return result

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
