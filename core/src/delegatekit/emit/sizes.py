"""Sizes in the file: the changing ones of inputs, and the numbers computed from them for use outside delegates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit_api.nodes import describe_node

from ..edge.sizes import affine, is_size_node, is_static, lower_bound, upper_shape
from ..pte.axes import Axis, InputAxes
from ..pte.kernels import PRIMITIVE_OF
from .writer import Writer

aten = torch.ops.aten

#: The initial value of a size.
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


def input_axes(inputs: Sequence[Node]) -> InputAxes:
    """The sizes of the inputs that have changing ones."""
    return tuple(_axes(node) for node in inputs)


def _axes(node: Node) -> tuple[int | Axis, ...] | None:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or is_static(value.shape):
        return None
    largest = upper_shape(value.shape, describe_node(node))
    return tuple(
        size if isinstance(size, int) else _axis(size, most) for size, most in zip(value.shape, largest, strict=True)
    )


def _axis(size: torch.SymInt, most: int) -> Axis:
    terms = affine(size.node.expr)
    if terms is None or terms[1] <= 0:
        return Axis(str(size), lower_bound(size), most)
    symbol, times, plus = terms
    return Axis(str(symbol), lower_bound(size), most, times, plus)
