"""Writes the numbers that are computed from sizes: only those that something outside delegates uses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.fx import Node

from ..edge.sizes import is_size_node
from ..fallback.numbers import PRIMITIVE_OF
from .writer import Writer

aten = torch.ops.aten

#: The number that a size's value begins with.
ZEROS: Final[dict[type, Any]] = {torch.SymInt: 0, torch.SymFloat: 0.0, torch.SymBool: False}


def needed_sizes(users: Iterable[Any]) -> set[Node]:
    """The size nodes among these nodes, and those that they are computed from."""
    needed: set[Node] = set()
    waiting = [node for node in users if isinstance(node, Node)]
    while waiting:
        node = waiting.pop()
        if is_size_node(node) and node not in needed:
            needed.add(node)
            waiting.extend(node.all_input_nodes)
    return needed


def write_size(writer: Writer, node: Node) -> None:
    """Write a number that is computed from sizes."""
    values = writer.values
    result = values.number(ZEROS[type(node.meta["val"])], key=node)
    arguments = [values.used(item) if isinstance(item, Node) else values.literal(item) for item in node.args]
    if node.target is aten.sym_size.int:
        writer.code.kernel("aten::sym_size", "int", [*arguments, result])
    else:
        writer.code.primitive(PRIMITIVE_OF[node.target], *arguments, result)
