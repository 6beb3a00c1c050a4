"""Lets operators compute on integers, or with integer weights, if the runtime has an operator for that.

The lowering writes a quantized program unchanged: conversions around operators on numbers, and weights as integers.
Here `quantize(op(dequantize(a), weight))` becomes one call on integers, and a linear layer with integer weights one
that reads them. The rest computes on numbers: the conversions run on the device, and constant integers become numbers.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

from delegatekit_toolkit.sizes import dynamic_count

from ..ir.graph import PREPACK, Argument, Graph, Node, SymInt, Tensor, constant
from ..ir.stock import (
    ADD,
    CHOOSE,
    CLAMPED_CONVOLUTION,
    CONVOLUTION,
    DEQUANTIZE,
    DEQUANTIZE_BLOCKS,
    INT8_ADD,
    INT8_LINEAR,
    INT8_LINEAR_ROW,
    LINEAR,
    PAD,
    QUANTIZE,
    QUANTIZE_BLOCKS,
    VIEW,
    facts_of,
)
from ..ir.weights import IntegerProduct, aligned, aligned_bias, channel_weights, holds, integer_convolution, to_numbers
from .clamps import NO_BOUNDS, Bounds, bounds_of
from .integer_weights import lost_weights, use_integer_weights
from .matching import Matcher, join_handles

_LEAST, _GREATEST = -128, 127

#: Operators that are dropped if nothing reads their result.
_REMOVABLE = frozenset((QUANTIZE, DEQUANTIZE, CHOOSE, QUANTIZE_BLOCKS, DEQUANTIZE_BLOCKS, PREPACK, PAD, VIEW))

#: The integers of an activation, with scale and zero point.
_Integers: TypeAlias = "tuple[Tensor, float, int]"


def fold_integers(graph: Graph, *, half: bool, any_scale: bool) -> None:
    """Compute on integers if the runtime supports it; with `half`, float32 is stored as float16.

    `any_scale`: clamps may be dropped as if the scales were those of the clamped result, for a graph with placeholders
    as scales.
    """
    folder = _Folder(graph, half=half, any_scale=any_scale)
    for node in graph.nodes:
        if node.operator == QUANTIZE:
            folder.fold(node)
    graph.nodes = [node for node in graph.nodes if node not in folder.folded]
    use_integer_weights(graph, half=half)
    _drop_unread(graph)
    graph.notes += lost_weights(graph, half=half)
    for tensor in graph.constants():
        to_numbers(tensor)


def float_reason(graph: Graph) -> str | None:
    """The reason why a quantized layer, after this pass, computes on numbers; None if it is on integers."""
    between = (QUANTIZE, DEQUANTIZE, PAD)
    left = [node.operator for node in graph.nodes if not facts_of(node).on_integers]
    names = [name for name in dict.fromkeys(left) if name not in between]
    return f"the runtime has no integer form of it: it computes on numbers, by {', '.join(names)}" if names else None


class _Folder:
    def __init__(self, graph: Graph, *, half: bool, any_scale: bool) -> None:
        self._half = half
        self._any_scale = any_scale
        self._match = Matcher(graph)
        #: Nodes that were folded into another one.
        self.folded: set[Node] = set()

    def fold(self, quantize: Node) -> None:
        """Fold a quantize, the operator before it, and a clamp between them into one call on integers, if possible."""
        clamp, bounds = self._source(quantize), NO_BOUNDS
        found = None if clamp is None else bounds_of(clamp)
        operator = clamp
        if clamp is not None and found is not None and len(clamp.reads) == 1:
            operator, bounds = self._source(clamp), found
        if operator is None:
            return
        made = self._on_integers(quantize, operator, bounds)
        if made is None:
            return
        gone = [node for node in dict.fromkeys((operator, clamp)) if node is not None]
        read = [self._match.maker(value, DEQUANTIZE) for value in operator.reads]
        quantize.operator, quantize.arguments = made
        join_handles(quantize, *(node for node in read if node is not None), *gone)
        self.folded.update(gone)

    def _source(self, node: Node) -> Node | None:
        """The node that computes the first operand of a node, if nothing else reads it."""
        made = self._match.maker(node.arguments[0])
        return made if made is not None and len(made.results) == 1 and self._match.only_reader(made) is node else None

    def _on_integers(self, quantize: Node, node: Node, bounds: Bounds) -> tuple[str, list[Argument]] | None:
        scale, zero_point = quantize.arguments[1:3]
        assert isinstance(scale, float) and isinstance(zero_point, int)
        if node.operator == CLAMPED_CONVOLUTION:
            low, high = node.arguments[9:11]
            assert isinstance(low, float) and isinstance(high, float) and bounds == NO_BOUNDS
            bounds = low, high
        activation = self._activation(bounds, scale, zero_point)
        if activation is None:
            return None
        output: list[Argument] = [scale, zero_point]
        if node.operator in (CONVOLUTION, CLAMPED_CONVOLUTION):
            return self._convolution(node, output, activation)
        if node.operator == LINEAR:
            return self._linear(node, output, activation)
        if node.operator == ADD and (activation == "none" or self._any_scale or zero_point == _LEAST):
            return self._sum(node, output)
        return None

    def _activation(self, bounds: Bounds, scale: float, zero_point: int) -> str | None:
        """The runtime's name of a clamp before a quantize; None if it has none.

        A clamp that is implied by the range of the integers is dropped.
        """
        low, high = (_saturated(bound, scale, zero_point) for bound in bounds)
        if low > high or (high < _GREATEST and not self._any_scale):
            return None
        if bounds[0] == 0:
            return "relu"
        return "none" if low <= _LEAST else None

    # -- operators -----------------------------------------------------------------------------------------------------

    def _convolution(self, node: Node, output: list[Argument], activation: str) -> tuple[str, list[Argument]] | None:
        x, weight, bias = self._integers(node.arguments[0]), node.arguments[1], node.arguments[2]
        if x is None or not isinstance(weight, Tensor) or not _is_one_image(x[0]):
            return None
        packed = integer_convolution(node)
        if packed is None or not holds(packed.scales, half=self._half):
            return None
        arguments: list[Argument] = [*x, *self._weights(packed, bias), *packed.settings, activation]
        return packed.operator, [*arguments[:6], *output, *arguments[6:]]

    def _linear(self, node: Node, output: list[Argument], activation: str) -> tuple[str, list[Argument]] | None:
        x, weight, bias = self._integers(node.arguments[0]), node.arguments[1], node.arguments[2]
        if x is None or not isinstance(weight, Tensor) or dynamic_count(x[0].shape):
            return None
        found = channel_weights(weight, 0)
        *outer, rows, inner = x[0].sizes
        if found is None or not holds(found[1], half=self._half) or inner % 4 or math.prod(outer) != 1:
            return None
        integers, scales = found
        packed = IntegerProduct(INT8_LINEAR, integers, integers.sum(1), scales)
        head = [*x, *self._weights(packed, bias)]
        name = INT8_LINEAR_ROW if rows == 1 else INT8_LINEAR
        return name, [*head[:6], *output, head[6], activation]

    def _sum(self, node: Node, output: list[Argument]) -> tuple[str, list[Argument]] | None:
        left, right, alpha = self._integers(node.arguments[0]), self._integers(node.arguments[1]), node.arguments[2]
        if left is None or right is None or left[0].sizes != right[0].sizes or not isinstance(alpha, int | float):
            return None
        if dynamic_count(left[0].shape) or left[0].rank > 4:
            return None
        return INT8_ADD, [left[0], right[0], *left[1:], *right[1:], *output, alpha]

    def _weights(self, packed: IntegerProduct, bias: Argument) -> list[Argument]:
        """Integers, their sums, scales and bias, in the runtime's form."""
        return [
            constant(packed.weight),
            constant(aligned(packed.sums.to(torch.int32))),
            constant(aligned(packed.scales), half=self._half),
            aligned_bias(bias),
        ]

    def _integers(self, value: Argument) -> _Integers | None:
        """The integers that an operand is dequantized from."""
        node = self._match.maker(value, DEQUANTIZE)
        if node is None:
            return None
        source, scale, zero_point = node.arguments[:3]
        assert isinstance(source, Tensor) and isinstance(scale, float) and isinstance(zero_point, int)
        return source, scale, zero_point


def _is_one_image(tensor: Tensor) -> bool:
    """True if it is one image, whose size does not change."""
    return tensor.rank == 4 and tensor.sizes[0] == 1 and not dynamic_count(tensor.shape)


def _saturated(bound: float, scale: float, zero_point: int) -> float:
    """The integer of a bound, which may be infinite or beyond the range."""
    return bound if math.isinf(bound) else round(bound / scale) + zero_point


def _drop_unread(graph: Graph) -> None:
    """Drop dead conversions, views of them, and uploaded constants."""
    read: set[Tensor | SymInt] = {*graph.outputs, *graph.kept()}
    kept = []
    for node in reversed(graph.nodes):
        removable = node.operator in _REMOVABLE
        if removable and not read.intersection(node.results):
            continue
        read.update(node.reads)
        kept.append(node)
    graph.nodes = kept[::-1]
