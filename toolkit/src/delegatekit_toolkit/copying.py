"""The copy of a program that a pass changes: its graph, and its constants under the nodes of the copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from delegatekit_api import LoweringError

#: Metadata of a node's position in the user's model: a replacement takes that of the node that it replaces.
PLACE: Final = ("debug_handle", "source_operator", "stack_trace", "nn_module_stack", "custom")
#: A pass may write this many nodes for each that it found, and this many in any case.
_GROWTH: Final = 50
_FLOOR: Final = 10_000


class CopiedGraph(Graph):
    """A copy of a graph that stops a pass which never stops adding nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[Node, Node] = {}
        #: The nodes before the pass, and what they were copied from.
        self.originals: dict[Node, Node] = {}
        #: The graph's results before the pass.
        self.returned: tuple[Any, ...] = ()
        self._left: int | None = None

    @classmethod
    def of(cls, source: Graph) -> CopiedGraph:
        """A copy, without the output node."""
        graph = cls()
        for node in source.nodes:
            if node.op != "output":
                graph.copies[node] = graph.node_copy(node, graph.copies.__getitem__)
        graph.originals = {copy: node for node, copy in graph.copies.items()}
        return graph

    def finish(self, outputs: Sequence[Any]) -> Node:
        """Add the output node, and start counting."""
        self.returned = tuple(torch.fx.map_arg(list(outputs), self.copies.__getitem__))
        node: Node = self.output(self.returned)
        self._left = _FLOOR + _GROWTH * len(self.copies)
        return node

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        """Add a node. Raises LoweringError beyond the limit."""
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise LoweringError(
                    f"wrote more than {_FLOOR + _GROWTH * len(self.copies)} nodes into a graph of {len(self.copies)}",
                    hint="does it keep rewriting its own output?",
                )
        node: Node = super().create_node(*args, **kwargs)
        # Its position in the model is that of the node that it is inserted before, or else after.
        near = next((item.meta for item in (node.next, node.prev) if "debug_handle" in item.meta), {})
        node.meta.update({key: near[key] for key in PLACE if key in near})
        return node


class CopiedConstants(Mapping[Node, torch.Tensor]):
    """The constants of a program under the nodes of its copy. Only those that the pass reads are read.

    So large ones that are computed when they are read, weights with a batch norm folded in, take memory one at a time.
    """

    def __init__(self, given: Mapping[Node, torch.Tensor], graph: CopiedGraph) -> None:
        self._given = {graph.copies[node]: node for node in given}
        self._values = given
        #: Those that the pass adds.
        self.added: Final[dict[Node, torch.Tensor]] = {}

    def __getitem__(self, node: Node) -> torch.Tensor:
        return self.added[node] if node in self.added else self._values[self._given[node]]

    def __contains__(self, node: object) -> bool:
        return node in self._given or node in self.added

    def __iter__(self) -> Iterator[Node]:
        yield from self._given
        yield from self.added

    def __len__(self) -> int:
        return len(self._given) + len(self.added)
