"""The one annotator: layers of a declared scheme become torchao annotations.

Every quantized tensor is a point: the value that a node gives, or an edge, where a user wants it in another form.
Points that must have the same parameters are joined into groups. The first point of a group in graph order gets the
torchao specification, the others refer to it. torchao's own guesses about sharing are turned off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e.fake_quantize import FusedMovingAvgObsFakeQuantize
from torchao.quantization.pt2e.observer import (
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
)
from torchao.quantization.pt2e.quantizer import (
    DerivedQuantizationSpec,
    FixedQParamsQuantizationSpec,
    QuantizationAnnotation,
    QuantizationSpec,
    Quantizer,
    SharedQuantizationSpec,
)

from delegatekit_api import MOVING_OPERATORS, QuantizationScheme, TensorQuantization

from .apart import take_apart
from .graph import copied, names, normalise, numbers_to_tensors, short_name
from .observers import QuickHistogramObserver
from .patterns import Layer, find_layers
from .products import products_to_linear
from .report import LayerReport
from .state import give_own_state

#: A quantized tensor: a node's value, or an edge (operand, user).
Point: TypeAlias = Node | tuple[Node, Node]

#: The types that hold values of fewer bits.
STORAGE = {"int4": torch.int8, "uint4": torch.uint8}


class SchemeQuantizer(Quantizer):  # type: ignore[misc]
    """A torchao Quantizer that annotates as a declared scheme says.

    `kept` gives the reason why the user wants a node in float, or None. After `annotate`, `layers` are the quantized
    layers and `reasons` tell for each other operator on float tensors why it is not among them; with `compare`,
    `float_module` is the float graph with the same nodes.
    """

    def __init__(
        self,
        scheme: QuantizationScheme,
        kept: Callable[[Node], str | None],
        *,
        qat: bool = False,
        compare: bool = False,
    ) -> None:
        self.scheme = scheme
        self.float_module: GraphModule | None = None
        self.layers: list[Layer] = []
        self.reasons: dict[Node, str] = {}
        self._kept = kept
        self._qat = qat
        self._compare = compare
        self._order: list[Node] = []
        self._whole: dict[Node, str] = {}
        #: What moves values and is refused by its rule, behind what is quantized.
        self._barred: set[Node] = set()

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Called when batch norms are folded: in-place operators are renamed, numbers become tensors where wanted.

        What the scheme takes apart is in parts from here on.
        """
        normalise(model)
        self._whole = take_apart(model, self.scheme, self._kept)
        products_to_linear(model, self.scheme, self._kept)
        numbers = [layer.anchor for layer in find_layers(model, self.scheme, self._kept)[0] if layer.rule.numbers]
        numbers_to_tensors(model, numbers)
        if self._compare:
            self.float_module = copied(model)
            give_own_state(self.float_module)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Write the annotations into the graph."""
        candidates, self.reasons = find_layers(model, self.scheme, self._kept)
        self.reasons.update((node, reason) for node, reason in self._whole.items() if node in self.reasons)
        points = _Points()
        for layer in candidates:
            reason = points.add(layer)
            if reason is None:
                self.layers.append(layer)
            else:
                self.reasons.update(dict.fromkeys(layer.nodes, reason))
        ruled = {name for rule in self.scheme.rules for name in rule.operators}
        anchors = {layer.anchor for layer in candidates}
        self._barred = {
            node
            for node in self.reasons
            if node not in anchors
            and self._kept(node) is None
            and not ruled.isdisjoint(names(node))
            and any(map(points.has, node.all_input_nodes))
        }
        points.annotate(model, self._qat)
        self._order = list(model.graph.nodes)
        return model

    def describe(self) -> tuple[LayerReport, ...]:
        """The layers in the order of the graph, quantized or not; of what only moves values, what stands in the way."""
        reports = {layer.anchor: described(layer.nodes, "") for layer in self.layers}
        reports |= {node: described((node,), reason) for node, reason in self.reasons.items()}
        return tuple(reports[node] for node in self._order if node in reports and self._is_told(node))

    def _is_told(self, node: Node) -> bool:
        """What only moves values is told where the rule for it refuses it in the midst of what is quantized."""
        if short_name(node) not in MOVING_OPERATORS:
            return True
        return node in self._barred

    def validate(self, model: GraphModule) -> None:
        """Nothing is left to check: declarations are checked when they are made."""


def described(nodes: Sequence[Node], reason: str) -> LayerReport:
    """The row of a report for nodes that are one layer; `reason` is "" if it is quantized."""
    stack = nodes[0].meta.get("nn_module_stack") or {}
    path = next(reversed([str(entry[0]) for entry in stack.values()]), "")
    operators = " + ".join(short_name(node) for node in nodes)
    return LayerReport(path, operators, nodes[-1].name, nodes[0].name, not reason, reason)


class _Points:
    """The quantized tensors of a graph, in groups with the same parameters."""

    def __init__(self) -> None:
        self._parent: dict[Point, Point] = {}
        self._quantization: dict[Point, TensorQuantization] = {}  # of the root of each group
        self._bias: list[tuple[Layer, Node]] = []
        #: Edges whose user wants another form than the value has, and those to what nobody quantized, by that form: one
        #: observer for all users of a value that want the same.
        self._forms: dict[tuple[Node, TensorQuantization], Point] = {}

    def add(self, layer: Layer) -> str | None:
        """Quantize the operands and results of a layer; the reason why not, if it stays in float."""
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
                self._bias.append((layer, layer.bias))
        for value in layer.outputs:
            if rule.output is not None:
                self._new(value, rule.output)
        return None

    def _add_sharing(self, layer: Layer) -> str | None:
        quantized = [value for value in layer.inputs if value in self._parent]
        if not quantized:
            return "none of its inputs is quantized"
        # What is calibrated leads: a range that the hardware fixed may be too small for the others.
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
        """Whether a point is quantized."""
        return point in self._parent

    def of(self, point: Point) -> TensorQuantization:
        """How a point is quantized."""
        return self._quantization[self._root(point)]

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

    def _root(self, point: Point) -> Point:
        while self._parent[point] != point:
            self._parent[point] = self._parent[self._parent[point]]
            point = self._parent[point]
        return point

    def _join(self, first: Point, second: Point) -> None:
        first, second = self._root(first), self._root(second)
        if first != second:
            self._parent[second] = first

    def annotate(self, model: GraphModule, qat: bool) -> None:
        """Write annotations into the graph. Others name the first point of their group, in torchao's order."""
        first: dict[Point, Point] = {}
        edges: dict[Node, list[Node]] = {}
        for point in self._parent:
            if isinstance(point, tuple):
                edges.setdefault(point[1], []).append(point[0])
        biases = {layer.anchor: (layer, bias) for layer, bias in self._bias}
        for node in model.graph.nodes:
            inputs: dict[Node, Any] = {}
            for value in edges.get(node, ()):
                inputs[value] = self._specification((value, node), first, qat)
            if node in biases:
                layer, bias = biases[node]
                inputs[bias] = _bias_specification(layer, bias)
            output = self._specification(node, first, qat) if node in self._parent else None
            if inputs or output is not None:
                node.meta["quantization_annotation"] = QuantizationAnnotation(
                    input_qspec_map=inputs, output_qspec=output, allow_implicit_sharing=False, _annotated=True
                )

    def _specification(self, point: Point, first: dict[Point, Point], qat: bool) -> Any:
        root = self._root(point)
        if root in first:
            return SharedQuantizationSpec(first[root])
        first[root] = point
        return specification(self._quantization[root], qat)


def specification(given: TensorQuantization, qat: bool) -> Any:
    """What torchao calls a QuantizationSpec, for a declaration. The axis of channels must be known."""
    dtype = STORAGE.get(given.dtype) or getattr(torch, given.dtype)
    low, high = given.range
    channels = given.granularity.kind == "channel"
    if channels:
        scheme = torch.per_channel_symmetric if given.symmetric else torch.per_channel_affine
    else:
        scheme = torch.per_tensor_symmetric if given.symmetric else torch.per_tensor_affine
    if given.scale is not None and given.zero_point is not None:
        return FixedQParamsQuantizationSpec(
            dtype=dtype, scale=given.scale, zero_point=given.zero_point, quant_min=low, quant_max=high, qscheme=scheme
        )
    return QuantizationSpec(
        dtype=dtype,
        observer_or_fake_quant_ctr=_observer(given, qat),
        quant_min=low,
        quant_max=high,
        qscheme=scheme,
        ch_axis=given.granularity.axis if channels else None,
        is_dynamic=given.dynamic,
    )


def _observer(given: TensorQuantization, qat: bool) -> Any:
    channels = given.granularity.kind == "channel"
    if given.dynamic:
        return PlaceholderObserver.with_args(eps=given.eps)
    if qat:
        observer = MovingAveragePerChannelMinMaxObserver if channels else MovingAverageMinMaxObserver
        return FusedMovingAvgObsFakeQuantize.with_args(observer=observer, eps=given.eps)
    kind: Any = PerChannelMinMaxObserver if channels else MinMaxObserver
    if given.observer == "moving-average":
        kind = MovingAveragePerChannelMinMaxObserver if channels else MovingAverageMinMaxObserver
    elif given.observer == "histogram":
        kind = QuickHistogramObserver
    return kind.with_args(eps=given.eps)


def _bias_specification(layer: Layer, bias: Node) -> DerivedQuantizationSpec:
    quantization, weight = layer.rule.bias, layer.weight
    assert quantization is not None and weight is not None and layer.weight_quantization is not None
    channels = layer.weight_quantization.granularity.kind == "channel"
    low, high = quantization.range

    def derive(observers: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The scale is that of the input times that of the weight; the zero point is 0."""
        scale = observers[0].calculate_qparams()[0] * observers[1].calculate_qparams()[0]
        return scale, torch.zeros_like(scale, dtype=torch.int64)

    return DerivedQuantizationSpec(
        derived_from=[(layer.inputs[0], layer.anchor), (weight, layer.anchor)],
        derive_qparams_fn=derive,
        dtype=torch.int32,
        quant_min=low,
        quant_max=high,
        qscheme=torch.per_channel_symmetric if channels else torch.per_tensor_symmetric,
        ch_axis=0 if channels else None,
    )
