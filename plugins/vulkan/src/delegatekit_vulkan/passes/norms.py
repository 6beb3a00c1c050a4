"""Fuses RMS norms that a program writes in parts into one call: x * rsqrt(mean(x * x) + eps), optionally weighted."""

from __future__ import annotations

from typing import Final

import torch

from ..ir.graph import Graph, Node, Tensor, constant
from ..ir.stock import ADD
from .matching import Matcher, join_handles

_NORM: Final = "et_vk.rms_norm.default"
_MUL: Final = "aten.mul.Tensor"
_SQUARE: Final = "aten.pow.Tensor_Scalar"
_MEAN: Final = "aten.mean.dim"
_RSQRT: Final = "aten.rsqrt.default"
#: The number of axes for which the runtime's norm is used.
_RANKS: Final = (2, 3, 4)


def fold_norms(graph: Graph, *, half: bool) -> None:
    """Replace the parts; with `half`, float32 is stored as float16. Dead constants may stay."""
    folder = _Folder(graph, half=half)
    for node in graph.nodes:
        if node.operator == _RSQRT:
            folder.fold(node)
    graph.nodes = [node for node in graph.nodes if node not in folder.folded]


class _Folder:
    def __init__(self, graph: Graph, *, half: bool) -> None:
        self._half = half
        self._match = Matcher(graph)
        #: Nodes that were folded into another one.
        self.folded: set[Node] = set()

    def fold(self, rsqrt: Node) -> None:
        """Fuse the parts around a reciprocal square root into one call, if they are a norm."""
        add = self._part(rsqrt.arguments[0], ADD)
        mean = None if add is None else self._part(add.arguments[0], _MEAN)
        square = None if mean is None else self._part(mean.arguments[0], _MUL, _SQUARE)
        scaled = self._match.only_reader(rsqrt)
        if add is None or mean is None or square is None or scaled is None or scaled.operator != _MUL:
            return
        x, epsilon = square.arguments[0], self._number(add.arguments[1])
        if not isinstance(x, Tensor) or epsilon is None or add.arguments[2] != 1 or not _squares(square, x):
            return
        if x.rank not in _RANKS or not isinstance(x.shape[-1], int) or not _over_rows(mean, x):
            return
        if x not in scaled.reads:  # besides the reciprocal root
            return
        parts = [square, mean, add, rsqrt]
        weight, last = self._weight(scaled, x)
        if last is not scaled:
            parts.append(scaled)
        last.operator, last.arguments = _NORM, [x, weight, epsilon]
        join_handles(last, *parts)
        self.folded.update(parts)

    def _weight(self, scaled: Node, x: Tensor) -> tuple[Tensor, Node]:
        """The weight of a norm and the node with its result: a product with a constant row is part of it."""
        product = self._match.only_reader(scaled)
        if product is not None and product.operator == _MUL:
            for value in product.reads:
                source = self._match.held(value)
                if source is not None and source.shape == x.shape[-1:] and source.datatype is x.datatype:
                    return source, product
        ones = torch.ones(x.sizes[-1], dtype=x.staging.torch)
        return constant(ones, half=self._half), scaled

    def _part(self, value: object, *operators: str) -> Node | None:
        """The node of one of these operators that computes a value with no other reader."""
        node = self._match.maker(value, *operators)
        return node if node is not None and self._match.only_reader(node) is not None else None

    def _number(self, value: object) -> float | None:
        """The value of a constant without axes, uploaded to the device."""
        source = self._match.held(value)
        if source is None or source.data is None or source.data.numel() != 1:
            return None
        return float(source.data)


def _squares(node: Node, x: Tensor) -> bool:
    return node.arguments[1] == 2 if node.operator == _SQUARE else node.arguments[1] is x


def _over_rows(mean: Node, x: Tensor) -> bool:
    return mean.arguments[1] in ((-1,), (x.rank - 1,)) and mean.arguments[2] is True
