"""A method as a graph to draw: operators, and the boxes that contain them: modules, delegates, control flow.

Operators are in the order of execution, and a box holds consecutive operators. So every arrow goes from
an earlier operator or box to a later one, whichever boxes are open: the drawing has no cycles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby, takewhile
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node

from delegatekit.edge import EdgeMethod, called_module, is_precompiled, producer
from delegatekit.lowering import graphs_of, is_work
from delegatekit.partition import Partition, PartitionedMethod, PartitionPlan
from delegatekit_api import Call
from delegatekit_toolkit.dtypes import dtype_name
from delegatekit_toolkit.macs import macs
from delegatekit_toolkit.source_paths import short_source

from ..report.rows import ExplainRow, rows_of

#: A box with more items than this gets boxes of neighbors.
_MOST: Final = 100
_NEIGHBORS: Final = 50
#: Parts of a module's path that become boxes.
_DEEPEST: Final = 40

MODULE, DELEGATE, FLOW, RANGE = "module", "delegate", "control flow", "range"


@dataclass(frozen=True)
class Operator:
    """A node that computes something, or an input, a buffer or the output."""

    name: str
    #: None for inputs, buffers and the output, whose kind is `kind`.
    row: ExplainRow | None
    kind: str
    #: Its results: "float32[1, 8]", several separated by "; ".
    values: str
    #: Bytes of the weights that it reads, as the program has them.
    weights: int = 0
    #: The multiply-accumulates of one call.
    macs: int = 0
    #: Bytes of its results; 0 where sizes change.
    size: int = 0

    @property
    def path(self) -> tuple[str, ...]:
        """The modules that contain it, the outermost first."""
        return tuple(self.row.module.split(".")[:_DEEPEST]) if self.row is not None and self.row.module else ()


@dataclass(frozen=True)
class Leaf:
    """An operator by its index in the drawing."""

    number: int
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Box:
    """Consecutive items, as one."""

    label: str
    kind: str
    items: tuple[Item, ...]
    path: tuple[str, ...] = ()
    #: Of a delegate: its index among the method's delegates, in the order of their calls.
    delegate: int | None = None


Item: TypeAlias = Leaf | Box


@dataclass(frozen=True)
class Drawing:
    """The graph of a method."""

    method: str
    operators: tuple[Operator, ...]
    #: Pairs of indices: the second operator reads a result of the first.
    arrows: tuple[tuple[int, int], ...]
    items: tuple[Item, ...]


def draw(method: PartitionedMethod) -> Drawing:
    """The drawing of a method. Every operator is in it once."""
    return _Pen(method.edge.name).draw(method.edge, method.plan)


@dataclass
class _Pen:
    method: str
    operators: list[Operator] = field(default_factory=list)
    arrows: dict[tuple[int, int], None] = field(default_factory=dict)
    #: Node -> the operator that makes its value.
    makers: dict[Node, int] = field(default_factory=dict)
    #: Node -> its multiply-accumulates.
    counts: dict[Node, int] = field(default_factory=dict)
    delegates: Iterator[int] = field(default_factory=count)

    def draw(self, edge: EdgeMethod, plan: PartitionPlan) -> Drawing:
        items: list[Item] = [self._leaf(node, None, "input") for node in edge.inputs]
        items += [self._leaf(node, None, "buffer") for node in edge.buffers]
        items += nested(list(self._items(edge, plan)))
        self.operators.append(Operator("output", None, "output", "; ".join(map(_value, edge.outputs))))
        last = len(self.operators) - 1
        updated = [known.updated for known in edge.buffers.values()]
        self._arrows_to(last, [item for item in (*edge.outputs, *updated) if isinstance(item, Node)])
        items.append(Leaf(last))
        return Drawing(self.method, tuple(self.operators), tuple(self.arrows), tuple(items))

    def _items(self, edge: EdgeMethod, plan: PartitionPlan) -> Iterator[Item]:
        rows = {node: replace(row, source=short_source(row.source)) for node, row in rows_of(self.method, edge, plan)}
        self.counts.update((node, _macs(node, edge)) for node in rows)
        for step in plan.steps:
            if isinstance(step, Partition):
                number = next(self.delegates)
                inside = [self._leaf(node, rows[node]) for node in step.nodes if is_work(node)]
                yield Box(step.backend, DELEGATE, tuple(nested(inside)), _common(inside), number)
            elif step in edge.regions:
                yield self._control_flow(step, rows[step], edge.regions[step], plan.regions[step])
            elif is_work(step):
                leaf = self._leaf(step, rows[step])
                if is_precompiled(step):
                    yield Box(rows[step].backend or "", DELEGATE, (leaf,), leaf.path, next(self.delegates))
                else:
                    yield leaf

    def _control_flow(
        self, call: Node, row: ExplainRow, graphs: Sequence[EdgeMethod], plans: Sequence[PartitionPlan]
    ) -> Box:
        head = self._leaf(call, row)
        inside: list[Item] = [head]
        for number, (graph, plan) in enumerate(zip(graphs, plans, strict=True)):
            self.makers.update(dict.fromkeys(graph.inputs, head.number))
            inside.append(Box(f"graph {number}", FLOW, tuple(nested(list(self._items(graph, plan)))), head.path))
        return Box(row.operator, FLOW, tuple(inside), head.path)

    def _leaf(self, node: Node, row: ExplainRow | None, kind: str = "operator") -> Leaf:
        number = len(self.operators)
        constants = {item for item in node.all_input_nodes if item.op == "placeholder" and item not in self.makers}
        size = sum(_bytes(item.meta.get("val")) for item in constants) if row is not None else 0
        made = Operator(
            node.name, row, kind, _value(node), size, self.counts.get(node, 0), _bytes(node.meta.get("val"))
        )
        self.operators.append(made)
        self.makers[node] = number
        self._arrows_to(number, node.all_input_nodes)
        return Leaf(number, made.path)

    def _arrows_to(self, number: int, nodes: Iterable[Node]) -> None:
        for node in nodes:
            maker = self.makers.get(producer(node))
            if maker is not None and maker != number:  # constants and sizes have none
                self.arrows[maker, number] = None


def nested(items: Sequence[Item], depth: int = 0) -> list[Item]:
    """The same items, neighbors of one module in a box; and boxes of neighbors where there are too many."""
    found: list[Item] = []
    for part, run in groupby(items, lambda item: item.path[depth] if len(item.path) > depth else None):
        members = list(run)
        if part is None or len(members) == 1:
            found += members
            continue
        inside = nested(members, depth + 1)
        (first, *others) = inside
        if not others and isinstance(first, Box) and first.kind == MODULE:
            found.append(Box(f"{part}.{first.label}", MODULE, first.items, first.path))
        else:
            found.append(Box(part, MODULE, tuple(inside), members[0].path[: depth + 1]))
    while len(found) > _MOST:
        parts = [tuple(found[start : start + _NEIGHBORS]) for start in range(0, len(found), _NEIGHBORS)]
        found = [Box(f"part {number} of {len(parts)}", RANGE, part) for number, part in enumerate(parts, 1)]
    return found


def delegates_of(items: Iterable[Item]) -> Iterator[Box]:
    """The boxes of delegates, in the order of their calls."""
    for item in items:
        if isinstance(item, Box):
            if item.kind == DELEGATE:
                yield item
            else:
                yield from delegates_of(item.items)


def leaves(items: Iterable[Item]) -> Iterator[int]:
    """The indices of all operators, in order."""
    for item in items:
        if isinstance(item, Leaf):
            yield item.number
        else:
            yield from leaves(item.items)


def constants_of(method: PartitionedMethod) -> Mapping[str, tuple[str, int]]:
    """Weights that are read: name -> dtype and shape, and bytes as in the program."""
    found: dict[str, tuple[str, int]] = {}
    for edge, _ in graphs_of(method.edge, method.plan):
        for node in edge.constants:
            if node.users:
                found[str(node.meta.get("fqn") or node.name)] = _value(node), _bytes(node.meta.get("val"))
    return found


def weight_kinds(methods: Iterable[PartitionedMethod]) -> dict[str, int]:
    """Bytes of the weights that are read, by dtype."""
    found: dict[str, tuple[str, int]] = {}
    for method in methods:
        found.update(constants_of(method))
    sizes: dict[str, int] = {}
    for kind, size in found.values():
        dtype = kind.partition("[")[0]
        sizes[dtype] = sizes.get(dtype, 0) + size
    return sizes


def _common(items: Sequence[Item]) -> tuple[str, ...]:
    """The modules that contain all of them."""
    columns = zip(*(item.path for item in items), strict=False)
    return tuple(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))


def _macs(node: Node, edge: EdgeMethod) -> int:
    """The multiply-accumulates of one call; of a lowered module those of all its operators."""
    inside = (
        [item for item in called_module(node).delegate.partition.nodes if is_work(item)] if is_precompiled(node) else []
    )
    return sum(macs(Call(item, edge.view)) for item in inside or [node])


def _value(item: Any) -> str:
    value = item.meta.get("val") if isinstance(item, Node) else item
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value.dtype)}[{', '.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple):
        return "; ".join(map(_value, value))
    return str(value)


def _bytes(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_bytes, value))
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return 0
    return value.numel() * value.element_size()
