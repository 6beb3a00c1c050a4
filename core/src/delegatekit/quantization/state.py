"""Buffers that a graph writes: a model's state, which calibration must not touch and every run starts from."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from delegatekit_toolkit.later import zeros

from .graph import attribute, is_written, set_attribute


def give_own_state(module: GraphModule) -> None:
    """Replace the buffers that the graph writes to by copies. Names of one tensor stay so."""
    copies: dict[int, torch.Tensor] = {}
    for name in _written(module):
        buffer = attribute(module, name)
        set_attribute(module, name, copies.setdefault(id(buffer), _copy(buffer.detach())))


def _copy(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.clone() if buffer.any() or not buffer.is_contiguous() else zeros(buffer.shape, buffer.dtype)


@contextmanager
def state_kept(module: GraphModule) -> Iterator[None]:
    """The block starts from the state of the module, which is restored after it."""
    kept = [(buffer, buffer.clone()) for buffer in (attribute(module, name) for name in _written(module))]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in kept:
                buffer.copy_(value)


def _written(module: GraphModule) -> list[str]:
    """The names of the buffers that operators write to, through views as well."""
    found: dict[str, None] = {}
    for node in module.graph.nodes:
        if node.op != "call_function" or not is_written(node):
            continue
        for index, argument in enumerate(node.target._schema.arguments):
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, Node):
                source = _viewed(value)
                if source.op == "get_attr":
                    found[str(source.target)] = None
    return list(found)


def _viewed(node: Node) -> Node:
    """The value that a value views, or itself."""
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node):
        target = node.target
        aliases = isinstance(target, OpOverload) and any(item.alias_info is not None for item in target._schema.returns)
        if not aliases and target is not operator.getitem:
            break
        node = node.args[0]
    return node
