"""From a partition to a graph: each node becomes a step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from delegatekit_api import LoweringError, NamedData, ProgramView, describe_node, operator_name

from .graph import Argument, Constant, Graph, Named, Range, Ref, Step, Tensor
from .numbers import name_of

#: Constants lie in the file as in torch's own memory: some libraries round differently elsewhere.
_ALIGNMENT: Final = 64
_NAMED: Final[tuple[tuple[type, str], ...]] = (
    (torch.dtype, "dtype"),
    (torch.layout, "layout"),
    (torch.memory_format, "memory_format"),
    (torch.device, "device"),
)


@dataclass(frozen=True)
class Lowered:
    """A graph, the data of its constants, and the debug handles of its steps by position."""

    graph: Graph
    named_data: tuple[NamedData, ...]
    debug_handles: Mapping[int | str, tuple[int, ...]]


def build_graph(view: ProgramView) -> Lowered:
    """Write a partition down. Raises LoweringError for what a blob cannot say, naming the node."""
    types = _Types()
    data: dict[str, NamedData] = {}
    inputs = tuple(types.tensor(node) for node in view.inputs)
    constants = tuple(_constant(tensor, data) for tensor in view.constants.values())
    number = {node: index for index, node in enumerate((*view.inputs, *view.constants))}
    steps: list[Step] = []
    handles: dict[int | str, tuple[int, ...]] = {}
    for node in view.graph.nodes:
        if node.op != "call_function":
            continue
        if "debug_handle" in node.meta:
            handles[len(steps)] = (node.meta["debug_handle"],)
        steps.append(_step(node, number))
        number[node] = len(number)
    outputs: list[Node] = []
    for output in view.outputs:
        if output is None:
            raise LoweringError("returns something that is not computed", where="partition for the reference backend")
        outputs.append(output)
    graph = Graph(
        inputs,
        constants,
        tuple(steps),
        tuple(number[node] for node in outputs),
        tuple(types.tensor(node) for node in outputs),
    )
    return Lowered(graph, tuple(data.values()), handles)


def content_key(tensor: torch.Tensor) -> str:
    """The SHA-256 of the elements in row-major order, in hexadecimal; "" if there are none."""
    if not tensor.numel():
        return ""
    # One element is contiguous with any stride: reshape would keep that.
    elements = tensor.detach().contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    return hashlib.sha256(elements.numpy().data).hexdigest()


def _constant(tensor: torch.Tensor, data: dict[str, NamedData]) -> Constant:
    key = content_key(tensor)
    if key and key not in data:
        data[key] = NamedData(key, tensor.detach(), alignment=_ALIGNMENT)
    return Constant(_dtype(tensor.dtype), tuple(tensor.shape), key)


def _step(node: Node, number: Mapping[Node, int]) -> Step:
    name = operator_name(node) if isinstance(node.target, torch._ops.OpOverload) else name_of(node.target)
    if name is None:
        raise LoweringError("calls a function that a blob cannot name", where=describe_node(node))
    args = tuple(_argument(item, number, node) for item in node.args)
    return Step(name, args, {key: _argument(item, number, node) for key, item in node.kwargs.items()})


def _argument(item: Any, number: Mapping[Node, int], node: Node) -> Argument:
    if isinstance(item, Node):
        return Ref(number[item])
    if isinstance(item, list | tuple):
        return tuple(_argument(element, number, node) for element in item)
    if item is None or isinstance(item, bool | int | float | str):
        return item
    for kind, name in _NAMED:
        if isinstance(item, kind):
            return Named(name, str(item).removeprefix("torch."))
    raise LoweringError(f"has an argument that a blob cannot hold: {item!r:.60}", where=describe_node(node))


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class _Types:
    """Describes tensors; sizes of the same expression get the same symbol."""

    def __init__(self) -> None:
        self._symbols: dict[Any, int] = {}

    def tensor(self, node: Node) -> Tensor:
        value: Any = node.meta["val"]
        return Tensor(_dtype(value.dtype), tuple(self._size(size, node) for size in value.shape))

    def _size(self, size: Any, node: Node) -> int | Range:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        bounds = size.node.shape_env.bound_sympy(expression)
        if not bounds.upper.is_Integer:
            raise LoweringError(f"has a size without an upper bound: {size}", where=describe_node(node))
        # PyTorch traces changing sizes as if they were at least 2, whatever the user's range: that is no bound.
        lower = int(bounds.lower) if expression.is_Symbol and bounds.lower.is_Integer and bounds.lower > 2 else 0
        symbol = self._symbols.setdefault(expression, len(self._symbols))
        return Range(lower, int(bounds.upper), symbol)
