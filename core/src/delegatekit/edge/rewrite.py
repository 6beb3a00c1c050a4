"""Rewrites a method node by node with the edge builder, so that later changes stay within the dialect."""

from __future__ import annotations

import operator
from collections.abc import Collection
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node

from delegatekit_api import MutableState

from .arguments import nodes_in, substitute
from .builder import EdgeBuilder, drop_dead, resolve, translating
from .decompose import Decomposer
from .program import EdgeMethod
from .rules import RULES
from .sizes import is_size, is_size_node


class Rewrite:
    """A rewrite of a method; `call` gives the replacement of an operator call.

    Graphs of control flow are passed on.
    """

    def __init__(self, method: EdgeMethod, keep: Collection[str]) -> None:
        self.method = method
        self.decomposer = Decomposer()
        first = [node.meta.get("val") for node in method.graph.nodes if node.op != "output"]
        self.builder = EdgeBuilder(detect_fake_mode(first), RULES, self.decomposer, resolve(keep))
        self.values: dict[Node, Any] = {}

    def call(self, node: Node, args: Any, kwargs: Any) -> Any:
        """The value of an operator call with these arguments: the same call by default."""
        return self.builder.emit(node.target, args, kwargs, node.meta["val"])

    def rewritten(self) -> EdgeMethod:
        """The rewritten method. Raises UnsupportedError for a node that cannot be translated."""
        with translating(self.builder):
            for node in self.method.graph.nodes:
                self._translate(node)
        return self._finish()

    def _translate(self, node: Node) -> None:
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
            self.values[node] = value  # recomputed where it is used
            return
        known = {item: self.values[item] for item in nodes_in((node.args, node.kwargs))}
        args, kwargs = substitute((node.args, node.kwargs), known)
        if node in method.regions:
            created = builder.append_region_call(node.target, args, value)
            builder.regions[created] = method.regions[node]
            self.values[node] = created
        elif node.target is operator.getitem and isinstance(args[0], tuple):
            self.values[node] = args[0][args[1]]
        else:
            created = self.call(node, args, kwargs)
            if is_size(value):
                builder.sizes.offer(created)
            self.values[node] = value if is_size(value) else created

    def _finish(self) -> EdgeMethod:
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
