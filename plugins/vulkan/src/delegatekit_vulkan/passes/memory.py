"""Shares memory objects between tensors that are not needed at the same time."""

from __future__ import annotations

from ..ir.graph import Graph, Tensor
from ..ir.types import DataType, Layout, Storage


def share_memory(graph: Graph) -> None:
    """Number the memory objects. A tensor reuses a free one of its kind, if possible one that is large enough.

    Inputs, outputs, packed constants and tensors kept from call to call have memory of their own.
    """
    last: dict[Tensor, int] = {}
    for index, node in enumerate(graph.nodes):
        for value in (*node.reads, *node.results):
            if isinstance(value, Tensor):
                last[value] = index
    own = {*graph.inputs, *graph.outputs, *graph.kept()}
    free: list[tuple[tuple[Storage, Layout, DataType], int, int]] = []
    ends: dict[int, list[tuple[tuple[Storage, Layout, DataType], int, int]]] = {}
    count = 0
    for index, node in enumerate(graph.nodes):
        for result in node.results:
            if not isinstance(result, Tensor) or result in own or node.operator == "et_vk.prepack.default":
                continue
            kind = (result.storage, result.layout, result.datatype)
            size = _elements(result)
            fitting = [item for item in free if item[0] == kind]
            # The smallest that is large enough, else the largest, which then grows.
            best = min(fitting, key=lambda item: (item[1] < size, abs(item[1] - size)), default=None)
            if best is None:
                number, count = count, count + 1
            else:
                free.remove(best)
                number, size = best[2], max(best[1], size)
            result.memory = number
            ends.setdefault(last[result], []).append((kind, size, number))
        free += ends.pop(index, [])


def _elements(tensor: Tensor) -> int:
    count = 1
    for size in tensor.sizes:
        count *= size
    return count
