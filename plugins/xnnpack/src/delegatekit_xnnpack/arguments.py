"""Arguments of an operator call by the names of its schema, with defaults: what constraints and lowerings read."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.fx import Node

from .sizes import Size, size_of

_MISSING = object()
#: What a node may be beside a tensor (or several).
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def argument(node: Node, name: str) -> Any:
    """The value of an argument: positional, by keyword, or the schema's default.

    Raises KeyError if the operator has no argument of that name.
    """
    position, default = _parameters(node.target)[name]
    if position is not None and position < len(node.args):
        return node.args[position]
    value = node.kwargs.get(name, default)
    if value is _MISSING:
        raise KeyError(f"{node.target} needs {name}")
    return value


@cache
def _parameters(target: Any) -> dict[str, tuple[int | None, Any]]:
    """Argument name -> position (None for keyword-only) and default."""
    return {
        parameter.name: (
            None if parameter.kwarg_only else position,
            parameter.default_value if parameter.has_default_value() else _MISSING,
        )
        for position, parameter in enumerate(target._schema.arguments)
    }


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
