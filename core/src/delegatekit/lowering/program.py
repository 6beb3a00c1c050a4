"""A partition as a program of its own: the input of a backend's compiler."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from delegatekit_api import MutableState, PartitionProgram

from ..compiling import assemble
from ..edge import EdgeMethod
from ..edge.size_nodes import SizeNodes
from ..partition import Partition


def partition_program(
    edge: EdgeMethod, partition: Partition, index: int = 0, method: str | None = None
) -> PartitionProgram:
    """The partition as a program of its own: constants are references, nodes keep their names and metadata.

    Sizes that change are computed from those of the partition's own inputs.
    """
    graph = Graph()
    copies: dict[Node, Node] = {}
    sizes = SizeNodes(lambda target, args, value: _size_node(graph, target, args, value))

    def copy_placeholder(node: Node) -> Node:
        copy = graph.placeholder(node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
        return copy

    def inside(node: Node) -> Any:
        return copies[node] if node in copies else sizes.node(node.meta["val"])

    constants = [copy_placeholder(node) for node in partition.constants]
    for node in partition.buffers:
        copy_placeholder(node)
    inputs = [copy_placeholder(node) for node in partition.inputs]
    for node in inputs:
        sizes.offer(node)
    for node in partition.nodes:
        args: Any = torch.fx.map_arg(node.args, inside)
        kwargs: Any = torch.fx.map_arg(node.kwargs, inside)
        copy = graph.create_node("call_function", node.target, args, kwargs, node.name)
        copy.meta = dict(node.meta)
        copies[node] = copy
    outputs = tuple(copies[node] for node in partition.outputs)
    state = {
        copies[node]: MutableState(known.name, known.initial, copies[known.updated])
        for node, known in edge.buffers.items()
        if node in partition.buffers
    }
    tensors = edge.constants.renamed(dict(zip(constants, partition.constants, strict=True)))
    return assemble(graph, tensors, state, tuple(inputs), outputs, method or edge.name, index)


def _size_node(graph: Graph, target: Any, args: tuple[Any, ...], value: Any) -> Node:
    node = graph.create_node("call_function", target, args)
    node.meta["val"] = value
    return node
