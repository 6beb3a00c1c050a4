"""Helpers for passes that find nodes and replace them."""

from __future__ import annotations

from ..ir.graph import PREPACK, Graph, Node, Tensor


class Matcher:
    """The producers and readers of a graph's values, at the time of construction."""

    def __init__(self, graph: Graph) -> None:
        self._producers = graph.producers()
        self._users = graph.users()
        self._outputs = frozenset(graph.outputs)

    def maker(self, value: object, *operators: str) -> Node | None:
        """The node that computes a value, if it is one of these operators (of any, if none is named)."""
        node = self._producers.get(value) if isinstance(value, Tensor) else None
        return node if node is not None and (not operators or node.operator in operators) else None

    def only_reader(self, node: Node) -> Node | None:
        """The one node that reads a node's only result; None if there are several, or the graph returns it."""
        (result,) = node.results
        readers = self._users.get(result, ())
        return readers[0] if len(readers) == 1 and result not in self._outputs else None

    def held(self, value: object) -> Tensor | None:
        """The constant that a node uploaded as this value."""
        node = self.maker(value, PREPACK)
        source = None if node is None else node.arguments[0]
        return source if isinstance(source, Tensor) else None


def join_handles(target: Node, *parts: Node) -> None:
    """Add the debug handles of these parts to a node, before its own."""
    handles = (handle for node in (*parts, target) for handle in node.debug_handles)
    target.debug_handles = tuple(dict.fromkeys(handles))
