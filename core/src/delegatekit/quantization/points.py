"""Points: the quantized tensors of a graph, in groups that share their parameters.

A point is the value of a node, or an edge, if a user needs the value in another form.
"""

from __future__ import annotations

from typing import TypeAlias

from torch.fx import Node

from delegatekit_api.schemes import TensorQuantization

from .patterns import Layer

#: A quantized tensor: a node's value, or an edge (operand, user).
Point: TypeAlias = Node | tuple[Node, Node]


class Points:
    """The quantized tensors of a graph, in groups with the same parameters."""

    def __init__(self) -> None:
        self._parent: dict[Point, Point] = {}
        self._quantization: dict[Point, TensorQuantization] = {}  # of the root of each group
        #: Layers whose bias becomes integers, by their operator.
        self.biases: dict[Node, Layer] = {}
        #: Edges whose user needs another form than the value has, or whose value is not quantized, by that form: one
        #: observer for all users of a value that need the same.
        self._forms: dict[tuple[Node, TensorQuantization], Point] = {}

    def add(self, layer: Layer) -> str | None:
        """Quantize the operands and results of a layer; the reason if it stays in float."""
        rule = layer.rule
        if rule.shares:
            return self._add_sharing(layer)
        if rule.follows and not any(value in self._parent or value.op == "placeholder" for value in layer.inputs):
            return "none of its inputs is quantized"
        if rule.input is not None:
            for value in layer.inputs:
                self._add_edge(value, layer.anchor, rule.input)
        if layer.weight is not None and layer.weight_quantization is not None:
            self._add_edge(layer.weight, layer.anchor, layer.weight_quantization)
            if rule.bias is not None and layer.bias is not None:
                self.biases[layer.anchor] = layer
        for value in layer.outputs:
            if rule.output is not None:
                self._new(value, rule.output)
        return None

    def _add_sharing(self, layer: Layer) -> str | None:
        quantized = [value for value in layer.inputs if value in self._parent]
        if not quantized:
            return "none of its inputs is quantized"
        # Calibrated points lead: a range that the hardware fixed may be too small for the others.
        leader = next((value for value in quantized if self.of(value).scale is None), quantized[0])
        quantization = self.of(leader)
        for value in layer.inputs:
            if value in self._parent and self.of(value) == quantization:
                self._join(leader, value)
            edge = (value, layer.anchor)
            self._new(edge, quantization)
            self._join(leader, edge)
        for value in layer.outputs:
            self._new(value, quantization)
            self._join(leader, value)
        return None

    def has(self, point: Point) -> bool:
        """True if a point is quantized."""
        return point in self._parent

    def of(self, point: Point) -> TensorQuantization:
        """The quantization of a point."""
        return self._quantization[self.root(point)]

    def _add_edge(self, value: Node, user: Node, quantization: TensorQuantization) -> None:
        edge = (value, user)
        self._new(edge, quantization)
        if value in self._parent and self.of(value) == quantization:
            self._join(value, edge)
            return
        form = self._forms.setdefault((value, quantization), edge)
        self._join(form, edge)

    def _new(self, point: Point, quantization: TensorQuantization) -> None:
        self._parent[point] = point
        self._quantization[point] = quantization

    def edges(self) -> dict[Node, list[Node]]:
        """The operands of each node that are quantized for it."""
        found: dict[Node, list[Node]] = {}
        for point in self._parent:
            if isinstance(point, tuple):
                found.setdefault(point[1], []).append(point[0])
        return found

    def root(self, point: Point) -> Point:
        """The point that represents all with the same parameters."""
        while self._parent[point] != point:
            self._parent[point] = self._parent[self._parent[point]]
            point = self._parent[point]
        return point

    def _join(self, first: Point, second: Point) -> None:
        first, second = self.root(first), self.root(second)
        if first != second:
            self._parent[second] = first
