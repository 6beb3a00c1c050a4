"""Sizes that a node needs but no tensor of its own has: its delegate must get them from other inputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch.fx import Node

from delegatekit_api import ProgramView

from ..edge import EdgeMethod
from ..edge.size_nodes import SizeNodes
from ..edge.sizes import is_size


def valued_size(node: Node) -> Any:
    """A size of a node's results that depends on values, unknown to any delegate; None if there is none."""
    known = {symbol for size in _wanted(node) for symbol in _symbols(size)}
    known.update(symbol for item in _tensors(node) for size in item.meta["val"].shape for symbol in _symbols(size))
    return next((size for size in _made(node) if not _symbols(size) <= known), None)


def lost_in_set(method: EdgeMethod | ProgramView, members: Sequence[Node]) -> dict[Node, Any]:
    """Node -> a size of it that a delegate of these nodes could not compute from its inputs."""
    computing = [node for node in members if next(_wanted(node), None) is not None]
    if not computing:
        return {}
    inside = set(members)
    given = _Sizes(method, dict.fromkeys(item for node in members for item in _tensors(node) if item not in inside))
    found = {node: given.lost_by(node) for node in computing}
    return {node: size for node, size in found.items() if size is not None}


class _Sizes:
    """The changing sizes of some tensors. Those of constants are static."""

    def __init__(self, method: EdgeMethod | ProgramView, tensors: Iterable[Node]) -> None:
        self._known = SizeNodes(lambda target, args, value: args[0])
        self._symbols: set[Any] = set()
        for item in tensors:
            if item not in method.constants:
                self._known.offer(item)
                self._symbols.update(*map(_symbols, getattr(item.meta["val"], "shape", ())))

    def lost_by(self, node: Node) -> Any:
        """A size that the node needs and that cannot be computed from them, or that it derives from anything else."""
        lost = next((size for size in _wanted(node) if not self._known.can(size)), None)
        if lost is not None:
            return lost
        return next((size for size in _made(node) if not _symbols(size) <= self._symbols), None)


def _tensors(node: Node) -> list[Node]:
    return [item for item in node.all_input_nodes if not is_size(item.meta["val"])]


def _wanted(node: Node) -> Iterator[Any]:
    """The changing sizes among a node's arguments."""
    return (item.meta["val"] for item in node.all_input_nodes if is_size(item.meta["val"]))


def _made(node: Node) -> Iterator[Any]:
    """The sizes of a node's results; a number as result counts as one."""
    value = node.meta["val"]
    for result in value if isinstance(value, tuple | list) else (value,):
        yield from getattr(result, "shape", (result,))


def _symbols(size: Any) -> set[Any]:
    return size.node.expr.free_symbols if is_size(size) else set()
