"""Lets convolutions pad their input with zeros themselves, where it is as much before as after."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph, Node, SymInt, Tensor
from ..ir.stock import CLAMPED_CONVOLUTION, CONVOLUTION

_PAD = "aten.constant_pad_nd.default"
#: Positions of arguments.
_PADDING, _TRANSPOSED = 4, 6


def fold_pads(graph: Graph) -> None:
    """Fold paddings into the convolutions that read them, and drop those that add nothing or that nothing reads."""
    producers = graph.producers()
    nodes = []
    for node in graph.nodes:
        if _adds_nothing(node) and node.result not in graph.outputs:
            _replace_everywhere(graph, node)
            continue
        if node.operator in (CONVOLUTION, CLAMPED_CONVOLUTION):
            _fold(node, producers)
        nodes.append(node)
    graph.nodes = list(reversed(list(_read(reversed(nodes), set(graph.outputs)))))


def _fold(node: Node, producers: dict[Tensor | SymInt, Node]) -> None:
    pad = producers.get(node.reads[0])
    if pad is None or pad.operator != _PAD or node.arguments[_TRANSPOSED]:
        return
    source, own = pad.arguments[0], node.arguments[_PADDING]
    extra = _symmetric(pad, len(own)) if isinstance(own, tuple) else None
    if extra is not None and isinstance(own, tuple):
        node.arguments[0] = source
        node.arguments[_PADDING] = tuple(a + b for a, b in zip(own, extra, strict=True) if isinstance(a, int))
        node.debug_handles = tuple(dict.fromkeys((*pad.debug_handles, *node.debug_handles)))
        _fold(node, producers)  # one padding may follow another


def _read(nodes: Iterator[Node], read: set[Tensor | SymInt]) -> Iterator[Node]:
    """The nodes but for paddings that nothing reads, from the last to the first."""
    for node in nodes:
        if node.operator != _PAD or node.results[0] in read:
            read.update(node.reads)
            yield node


def _symmetric(pad: Node, axes: int) -> tuple[int, ...] | None:
    """Zeros before and after each of the last axes; None if the numbers differ, or other axes are padded, too."""
    numbers, value = pad.arguments[1], pad.arguments[2]
    if value != 0 or not isinstance(numbers, tuple) or any(not isinstance(item, int) or item < 0 for item in numbers):
        return None
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True)) + [(0, 0)] * axes
    if any(before != after for before, after in pairs) or any(pair != (0, 0) for pair in pairs[axes:]):
        return None
    return tuple(before for before, _ in reversed(pairs[:axes]) if isinstance(before, int))


def _adds_nothing(node: Node) -> bool:
    return node.operator == _PAD and isinstance(node.arguments[1], tuple) and not any(node.arguments[1])


def _replace_everywhere(graph: Graph, node: Node) -> None:
    source, result = node.arguments[0], node.result
    assert isinstance(source, Tensor) and isinstance(result, Tensor)
    for reader in graph.users().get(result, ()):
        reader.replace(result, source)
