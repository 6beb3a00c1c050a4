"""Lets linear layers read integer weights: 8 bits, or 4 in groups, also with rows that are quantized in each call."""

from __future__ import annotations

import math
from typing import Final

import torch

from delegatekit_toolkit.sizes import dynamic_count

from ..ir.graph import PREPACK, Argument, Graph, Node, Tensor, constant
from ..ir.stock import (
    ADD,
    CHOOSE,
    DEQUANTIZE_BLOCKS,
    LINEAR,
    LINEAR_INT4,
    LINEAR_INT8,
    LINEAR_ROWS_INT4,
    QUANTIZE_BLOCKS,
    VIEW,
)
from ..ir.weights import GroupedWeight, aligned, aligned_bias, channel_weights, grouped_weight, holds
from .matching import Matcher

#: A matrix, and scale and zero point of each of its rows.
_Rows = tuple[Tensor, Tensor, Tensor]
_FULL_RANGE: Final = (-128, 127)


def use_integer_weights(graph: Graph, *, half: bool) -> None:
    """Replace linear layers whose weights are kept as integers, if the runtime has an operator for them.

    With `half`, float32 is stored as float16.
    """
    layers = _Layers(graph, half=half)
    graph.nodes = [made for node in graph.nodes for made in layers.replaced(node)]


def lost_weights(graph: Graph, *, half: bool) -> list[str]:
    """Notes on weights that are still kept as integers after this pass and have to become numbers."""
    notes = []
    for node in graph.nodes:
        for tensor in dict.fromkeys(node.reads):
            if isinstance(tensor, Tensor) and tensor.integers is not None and tensor.rank > 1:
                reason = _lost(node, tensor, half=half)
                notes.append(f"integers {tensor.sizes} of {node.operator} become {tensor!r} in the file: {reason}")
    return notes


def _lost(node: Node, weight: Tensor, *, half: bool) -> str:
    own, data = weight.integers, weight.data
    assert own is not None and data is not None
    if node.operator != LINEAR:
        return "the runtime has no form of the operator that reads integers here"
    if not own.is_symmetric or data.dtype is not torch.int8:
        return "they have zero points, or not 8 bits or less with a sign"
    if own.group is None:
        return "their scales lose digits as float16" if own.axis in (None, 0) else "scales are not those of the rows"
    if grouped_weight(weight) is None:
        return f"in groups of {own.group}, the runtime reads 4 bits, and groups that are multiples of 4"
    if dynamic_count(_input(node).shape):
        return "the runtime reads groups of 4 bits for the same sizes in every call only"
    return "their scales lose digits as float16" if half else "their form is unknown"


class _Layers:
    def __init__(self, graph: Graph, *, half: bool) -> None:
        self._half = half
        self._match = Matcher(graph)
        #: Rows that are quantized for several layers are quantized once.
        self._rows: dict[Tensor, _Rows] = {}
        #: Tensors of more axes as one matrix.
        self._matrices: dict[Tensor, Tensor] = {}

    def replaced(self, node: Node) -> list[Node]:
        """The nodes that replace a node; the node itself if nothing changes."""
        weight = node.arguments[1] if node.operator == LINEAR else None
        if not isinstance(weight, Tensor) or weight.integers is None:
            return [node]
        grouped = None if dynamic_count(_input(node).shape) else grouped_weight(weight)
        if grouped is not None and holds(grouped.scales, half=self._half):
            return self._of_four_bits(node, grouped)
        found = channel_weights(weight, 0)
        if found is not None and holds(found[1], half=self._half):
            return self._of_eight_bits(node, constant(found[0]), constant(found[1], half=self._half))
        return [node]

    def _of_eight_bits(self, node: Node, weight: Tensor, scales: Tensor) -> list[Node]:
        bias, result, handles = node.arguments[2], node.result, node.debug_handles
        arguments: list[Argument] = [node.arguments[0], weight, scales]
        if bias is None:
            return [Node(LINEAR_INT8, arguments, result, handles)]
        assert isinstance(bias, Tensor) and isinstance(result, Tensor)
        product, held = _like(result), _like(bias)
        return [
            Node(LINEAR_INT8, arguments, product, handles),
            Node(PREPACK, [bias], held, handles),
            Node(ADD, [product, held, 1], result, handles),
        ]

    def _of_four_bits(self, node: Node, weight: GroupedWeight) -> list[Node]:
        packed, scales = constant(weight.packed), constant(aligned(weight.scales), half=self._half)
        bias = aligned_bias(node.arguments[2])
        choose = self._chosen(node.arguments[0])
        if choose is None:
            before, rows = self._as_matrix(node.arguments[0], node)
            found: list[Argument] = [rows, packed, scales, weight.group, bias]
            return [*before, *_written(node, LINEAR_INT4, found, rows)]
        before, (rows, scale, zero_point) = self._as_rows(choose)
        found = [rows, scale, zero_point, packed, constant(weight.sums), scales, weight.group, bias]
        return [*before, *_written(node, LINEAR_ROWS_INT4, found, rows)]

    def _as_matrix(self, value: Argument, reader: Node) -> tuple[list[Node], Tensor]:
        """The operand as one matrix, and the view to it: the runtime supports two axes only."""
        assert isinstance(value, Tensor)
        if math.prod(value.sizes[:-2]) == 1:
            return [], value
        if value in self._matrices:
            return [], self._matrices[value]
        shape = (math.prod(value.sizes[:-1]), value.sizes[-1])
        made = self._matrices[value] = Tensor(shape, value.datatype, value.staging)
        return [Node(VIEW, [value, shape], made, reader.debug_handles)], made

    def _chosen(self, value: Argument) -> Node | None:
        """The computation of the scales of rows that are quantized and dequantized to a value, or None."""
        dequantize = self._match.maker(value, VIEW)
        if dequantize is not None:  # more axes are viewed as a matrix
            value = dequantize.arguments[0]
        dequantize = self._match.maker(value, DEQUANTIZE_BLOCKS)
        quantize = None if dequantize is None else self._match.maker(dequantize.arguments[0], QUANTIZE_BLOCKS)
        choose = None if quantize is None else self._match.maker(quantize.arguments[2], CHOOSE)
        if dequantize is None or quantize is None or choose is None:
            return None
        source = choose.arguments[0]
        same = (
            quantize.arguments[0] is source
            and quantize.arguments[1:4] == [choose.arguments[2], *choose.results]
            and dequantize.arguments[1:4] == quantize.arguments[1:4]
            and all(tuple(item) == _FULL_RANGE for item in (choose.arguments[4:6], quantize.arguments[5:7]))
            and tuple(dequantize.arguments[5:7]) == _FULL_RANGE
        )
        assert isinstance(source, Tensor)
        rows = (*(1 for _ in source.shape[:-1]), source.shape[-1])
        return choose if same and choose.arguments[2] == rows else None

    def _as_rows(self, choose: Node) -> tuple[list[Node], _Rows]:
        """One matrix with scales and zero points of its rows, and the nodes that make them."""
        source = choose.arguments[0]
        before, rows = self._as_matrix(source, choose)
        if rows is source:
            scale, zero_point = choose.results
            assert isinstance(scale, Tensor) and isinstance(zero_point, Tensor)
            return [], (rows, scale, zero_point)
        if rows in self._rows:
            return before, self._rows[rows]
        scale, zero_point = (
            Tensor(rows.shape[:1], item.datatype, item.staging) for item in choose.results if isinstance(item, Tensor)
        )
        self._rows[rows] = (rows, scale, zero_point)
        arguments: list[Argument] = [rows, choose.arguments[1], (1, rows.sizes[1]), *choose.arguments[3:]]
        return [*before, Node(CHOOSE, arguments, (scale, zero_point), choose.debug_handles)], self._rows[rows]


def _written(node: Node, operator: str, arguments: list[Argument], rows: Tensor) -> list[Node]:
    """A layer on a matrix, and the view to the shape of the node's result."""
    result, handles = node.result, node.debug_handles
    assert isinstance(result, Tensor)
    shape = (*rows.shape[:-1], result.shape[-1])
    if shape == result.shape:
        return [Node(operator, arguments, result, handles)]
    flat = Tensor(shape, result.datatype, result.staging)
    return [Node(operator, arguments, flat, handles), Node(VIEW, [flat, result.sizes], result, handles)]


def _input(node: Node) -> Tensor:
    value = node.arguments[0]
    assert isinstance(value, Tensor)
    return value


def _like(tensor: Tensor) -> Tensor:
    return Tensor(tensor.shape, tensor.datatype, tensor.staging)
