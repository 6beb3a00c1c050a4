"""Lets convolutions pad their input with zeros themselves, if the padding is symmetric."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.graph import Graph, Node, SymInt, Tensor
from ..ir.stock import CLAMPED_CONVOLUTION, CONVOLUTION, DEQUANTIZE, PAD, QUANTIZE
from .matching import Matcher, join_handles

#: Positions of arguments.
_PADDING, _TRANSPOSED = 4, 6


def fold_pads(graph: Graph) -> None:
    """Fold paddings into the convolutions that read them, and drop unread ones."""
    match = Matcher(graph)
    for node in graph.nodes:
        if node.operator in (CONVOLUTION, CLAMPED_CONVOLUTION):
            _fold(node, match)
    graph.nodes = list(reversed(list(_read(reversed(graph.nodes), set(graph.outputs)))))


def _fold(node: Node, match: Matcher) -> None:
    pad = None if node.arguments[_TRANSPOSED] else _padding(node.reads[0], match)
    if pad is None:
        return
    source, own = pad.arguments[0], node.arguments[_PADDING]
    extra = _symmetric(pad, len(own)) if isinstance(own, tuple) else None
    if extra is not None and isinstance(own, tuple):
        node.arguments[0] = source
        node.arguments[_PADDING] = tuple(a + b for a, b in zip(own, extra, strict=True) if isinstance(a, int))
        join_handles(node, pad)
        _fold(node, match)  # one padding may follow another


def _padding(value: object, match: Matcher) -> Node | None:
    """The padding that computes a value; also if its result is quantized and dequantized like its operand."""
    node = match.maker(value, PAD, DEQUANTIZE)
    if node is None or node.operator == PAD:
        return node
    quantize = match.maker(node.arguments[0], QUANTIZE)
    pad = None if quantize is None else match.maker(quantize.arguments[0], PAD)
    before = None if pad is None else match.maker(pad.arguments[0], DEQUANTIZE)
    if quantize is None or before is None:
        return None
    steps = [item.arguments[1:5] for item in (before, quantize, node)]
    return pad if steps == [steps[0]] * 3 else None


def _read(nodes: Iterator[Node], read: set[Tensor | SymInt]) -> Iterator[Node]:
    """The nodes without unread paddings, from the last to the first."""
    for node in nodes:
        if node.operator != PAD or node.results[0] in read:
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
