"""An operator's arguments: those of a call by name, and the nodes nested in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from torch.fx import Node

_MISSING: Final = object()


def read_argument(call: Any, name: str) -> Any:
    """The value of an argument of a node or a `Draft`, by its name in the schema, with its default filled in.

    Raises KeyError if the operator has no argument of that name.
    """
    position, default = _parameters(call.target)[name]
    if position < len(call.args):
        return call.args[position]
    value = call.kwargs.get(name, default)
    if value is _MISSING:
        raise KeyError(f"{call.target} needs {name}")
    return value


def has_argument(call: Any, name: str) -> bool:
    """True if the operator of a node or a `Draft` has an argument of this name."""
    return name in _parameters(call.target)


@cache
def _parameters(target: Any) -> dict[str, tuple[int, Any]]:
    """Argument name -> position (beyond all others for keyword-only ones) and default."""
    return {
        parameter.name: (
            sys.maxsize if parameter.kwarg_only else position,
            parameter.default_value if parameter.has_default_value() else _MISSING,
        )
        for position, parameter in enumerate(target._schema.arguments)
    }


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
