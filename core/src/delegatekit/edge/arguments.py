"""Walks through an operator's arguments: nodes nested in lists, tuples and keyword arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import Node


def nodes_in(argument: Any) -> list[Node]:
    """The distinct nodes among the arguments, in order."""
    found: dict[Node, None] = {}

    def visit(item: Any) -> None:
        if isinstance(item, Node):
            found[item] = None
        elif isinstance(item, list | tuple):
            for element in item:
                visit(element)
        elif isinstance(item, dict):
            for element in item.values():
                visit(element)

    visit(argument)
    return list(found)


def substitute(argument: Any, values: Mapping[Node, Any]) -> Any:
    """The arguments with each node replaced by its value."""
    if isinstance(argument, Node):
        return values[argument]
    if isinstance(argument, list | tuple):
        return type(argument)(substitute(item, values) for item in argument)
    if isinstance(argument, dict):
        return {key: substitute(item, values) for key, item in argument.items()}
    return argument
