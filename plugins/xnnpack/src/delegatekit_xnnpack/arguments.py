"""Arguments of an operator call as constraints and lowerings read them: by name, sizes, axes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from delegatekit_api import argument, axes_of, per_axis
from delegatekit_toolkit.sizes import Size, size_of

__all__ = [
    "argument",
    "axes_of",
    "axis_of",
    "per_axis",
    "rank_of",
    "shape_of",
    "size_argument",
    "tensor_operands",
]

#: What a node may be beside a tensor (or several).
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def shape_of(node: Node) -> tuple[Size, ...]:
    """Sizes of a node's (tensor) value. Raises LoweringError for one without an upper bound."""
    return tuple(map(size_of, node.meta["val"].shape))


def tensor_operands(node: Node) -> list[Node]:
    """The nodes that a call reads, less those that are numbers computed from sizes."""
    return [operand for operand in node.all_input_nodes if not isinstance(operand.meta.get("val"), _NUMBERS)]


def size_argument(item: Any) -> Size | None:
    """An argument that is a size: an int, or a node that computes one; None for other things."""
    if isinstance(item, int):
        return item
    value = item.meta.get("val") if isinstance(item, Node) else None
    return size_of(value) if isinstance(value, torch.SymInt) else None


def rank_of(node: Node) -> int:
    """Number of axes of a node's (tensor) value."""
    return len(node.meta["val"].shape)


def axis_of(dim: int, rank: int) -> int:
    """A dimension counted from the front."""
    return dim + rank if dim < 0 else dim
