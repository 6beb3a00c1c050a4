"""Arguments of an operator call as constraints and lowerings read them: by name, sizes, axes."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from delegatekit_api import argument

from .sizes import Size, size_of

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


def axes_of(dims: Any, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, ascending; None, an empty list, and a single number are understood."""
    if isinstance(dims, int):
        dims = [dims]
    if rank == 0:  # PyTorch lets it have an axis 0
        return ()
    return tuple(sorted({axis_of(dim, rank) for dim in dims})) if dims else tuple(range(rank))


def per_axis(setting: Any, axes: int, default: int | None = None) -> tuple[int, ...]:
    """A window setting for each spatial axis: PyTorch allows one number for all, and nothing for the default."""
    values = [setting] if isinstance(setting, int) else list(setting)
    if not values and default is not None:
        values = [default]
    return tuple(values * axes if len(values) == 1 else values)
