"""A graph cut apart: a program in which each piece has inputs of its own, so that none reads results of another.

One lowering of such a program tries dozens of operators, each given the referee's values, and all of a delegate's
pieces stay in one delegate. Pieces of one unit try operators; longer ones try the compilation of neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.fx import Graph, Node, map_arg

from delegatekit.edge import EdgeMethod, SizeNodes, is_size, is_size_node
from delegatekit.partition import (
    Partition,
    PartitionedMethod,
    PartitionPlan,
    StateOwners,
    ask_backends,
    assemble,
    lost_in_set,
)
from delegatekit_api import BackendDescription, LoweringError, Partitioner
from delegatekit_api.nodes import describe_node


@dataclass(frozen=True)
class Piece:
    """Nodes that are connected with one another as in the graph, and with nothing else."""

    nodes: tuple[Node, ...]
    #: The partition whose delegate they are in; None: the runtime's own operators compute them.
    partition: int | None
    #: Its values that are read outside, or never read.
    outputs: tuple[Node, ...]

    @classmethod
    def of(cls, nodes: Sequence[Node], partition: int | None, returned: Iterable[Node]) -> Piece:
        """The piece of some nodes; `returned` are those that the graph returns."""
        inside, wanted = set(nodes), set(returned)
        outputs = tuple(
            node
            for node in nodes
            if _is_tensor(node) and (node in wanted or not node.users or any(user not in inside for user in node.users))
        )
        return cls(tuple(nodes), partition, outputs)


@dataclass(frozen=True)
class CutProgram:
    """The program of some pieces: its inputs and outputs are these nodes' values, in this order."""

    method: EdgeMethod
    plan: PartitionPlan
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


class RefusedError(LoweringError):
    """Nodes that their backend does not take when they are cut off from their neighbors: node -> reason."""

    def __init__(self, reasons: Mapping[Node, str]) -> None:
        node, reason = next(iter(reasons.items()))
        super().__init__(f"is not taken by itself: {reason}", where=describe_node(node))
        self.reasons = dict(reasons)


def cut(
    edge: EdgeMethod,
    plan: PartitionPlan,
    pieces: Sequence[Piece],
    partitioners: Mapping[str, Partitioner],
    descriptions: Mapping[str, BackendDescription],
) -> CutProgram:
    """The program of these pieces, each node on the runner that the plan assigns.

    Raises RefusedError for nodes that their backend does not take that way, LoweringError for unknown sizes.
    """
    writer = _Writer(edge)
    copies = writer.write(pieces)
    outputs = tuple(node for piece in pieces for node in piece.outputs)
    results = tuple(copies[node] for node in outputs)
    writer.graph.output(results)
    regions = {copies[node]: edge.regions[node] for node in copies if node in edge.regions}
    given = tuple(writer.placeholders[node] for node in writer.inputs)
    constants = edge.constants.renamed({writer.placeholders[node]: node for node in writer.constants})
    method = EdgeMethod(edge.name, writer.graph, constants, {}, given, results, regions=regions)
    found = _planned(method, plan, pieces, copies, partitioners, descriptions)
    inner = {copies[node]: plan.regions[node] for node in copies if node in edge.regions}
    return CutProgram(method.verified(), replace(found, regions=inner), tuple(writer.inputs), outputs)


def showing(method: PartitionedMethod, wanted: Sequence[Node]) -> PartitionedMethod:
    """The same method, which also returns some of its values, after its own outputs."""
    extra = set(wanted)

    def opened(part: Partition) -> Partition:
        return replace(part, outputs=tuple(node for node in part.nodes if node in extra or node in part.outputs))

    steps = tuple(opened(step) if isinstance(step, Partition) else step for step in method.plan.steps)
    edge = replace(method.edge, outputs=(*method.edge.outputs, *wanted), output_structure="")
    return replace(method, edge=edge, plan=replace(method.plan, steps=steps))


def _planned(
    method: EdgeMethod,
    plan: PartitionPlan,
    pieces: Sequence[Piece],
    copies: Mapping[Node, Node],
    partitioners: Mapping[str, Partitioner],
    descriptions: Mapping[str, BackendDescription],
) -> PartitionPlan:
    taker: dict[Node, str] = {}
    sets: dict[int, list[Node]] = {}
    refused: dict[Node, str] = {}
    for piece in pieces:
        if piece.partition is None:
            continue
        backend = plan.partitions[piece.partition].backend
        for node in piece.nodes:
            copy = copies[node]
            answer = ask_backends(copy, method, {backend: partitioners[backend]}, descriptions).get(backend)
            if answer is not None and not answer.supported:
                refused[node] = answer.reason
            taker[copy] = backend
            sets.setdefault(piece.partition, []).append(copy)
    originals = {copy: node for node, copy in copies.items()}
    for members in sets.values():
        for copy, size in lost_in_set(method, members).items():
            refused[originals[copy]] = f"the size {size} is not a size of its inputs"
    if refused:
        raise RefusedError(refused)
    calls = [node for node in method.graph.nodes if node.op == "call_function"]
    position = {node: index for index, node in enumerate(calls)}
    chosen = {number: sorted(members, key=position.__getitem__) for number, members in sets.items()}
    return assemble(method, calls, {}, taker, chosen, StateOwners(partitioners, descriptions))


class _Writer:
    """Writes the pieces into a graph of their own."""

    def __init__(self, edge: EdgeMethod) -> None:
        self._edge = edge
        self.graph = Graph()
        self.placeholders: dict[Node, Node] = {}
        self.constants: list[Node] = []
        self.inputs: list[Node] = []
        self._sizes = SizeNodes(self._size)
        #: The origin of the node that reads the sizes.
        self._reader: dict[str, Any] = {}

    def write(self, pieces: Sequence[Piece]) -> dict[Node, Node]:
        """Copies of the pieces' nodes, by the nodes."""
        for node in dict.fromkeys(_read(pieces)):
            self._placeholder(node)
        needed = [
            node for piece in pieces for item in piece.nodes for node in item.all_input_nodes if is_size_node(node)
        ]
        for node in self.inputs:
            self._sizes.offer(self.placeholders[node])
        if not all(self._sizes.can(node.meta["val"]) for node in needed):
            for node in self._edge.inputs:  # sizes come from the inputs of the method
                if node not in self.placeholders and _is_tensor(node):
                    self._placeholder(node)
                    self._sizes.offer(self.placeholders[node])
        copies: dict[Node, Node] = {}
        for piece in pieces:
            inside = set(piece.nodes)
            for node in piece.nodes:
                self._reader = node.meta

                def value(item: Node, inside: set[Node] = inside) -> Any:
                    if item in inside:
                        return copies[item]
                    return self._sizes.node(item.meta["val"]) if is_size(item.meta["val"]) else self.placeholders[item]

                args: Any = map_arg(node.args, value)
                kwargs: Any = map_arg(node.kwargs, value)
                copies[node] = self.graph.create_node("call_function", node.target, args, kwargs, node.name)
                copies[node].meta = dict(node.meta)
                self._sizes.offer(copies[node])
        return copies

    def _placeholder(self, node: Node) -> None:
        copy = self.graph.placeholder(node.name)
        copy.meta = {key: value for key, value in node.meta.items() if key != "dim_order"}
        self.placeholders[node] = copy
        (self.constants if node in self._edge.constants else self.inputs).append(node)

    def _size(self, target: Any, args: tuple[Any, ...], value: Any) -> Node:
        node = self.graph.create_node("call_function", target, args)
        node.meta = {**self._reader, "val": value}
        return node


def _read(pieces: Sequence[Piece]) -> Iterator[Node]:
    """The values that pieces read from outside: constants first."""
    found = [
        item
        for piece in pieces
        for inside in [set(piece.nodes)]
        for node in piece.nodes
        for item in node.all_input_nodes
        if item not in inside and not is_size(item.meta["val"])
    ]
    return iter(sorted(found, key=lambda node: node.op != "placeholder"))


def _is_tensor(node: Node) -> bool:
    return hasattr(node.meta.get("val"), "dtype")
