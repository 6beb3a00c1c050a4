"""The one annotator: layers of a declared scheme become torchao annotations.

The scheme determines the quantization of a layer, the backend its support: layers that it refuses stay in float.
Every quantized tensor is a point (`points`); points that must have the same parameters are a group. The first point of
a group in graph order gets the torchao specification, the others refer to it. torchao's own guesses about sharing are
turned off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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

from delegatekit_api.schemes import MOVING_OPERATORS, QuantizationScheme, TensorQuantization

from .affine import given_integers, storage
from .apart import Apart
from .graph import copied, names, normalize, numbers_to_tensors, short_name
from .observers import QuickHistogramObserver
from .patterns import Layer, Refusals, find_layers
from .points import Point, Points
from .products import products_to_linear
from .report import LayerReport
from .state import give_own_state
from .trial import Trial


class SchemeQuantizer(Quantizer):  # type: ignore[misc]
    """A torchao Quantizer for a declared scheme.

    `kept` gives the reason why the user wants a node in float, or None. `trial` asks the backend; without it, all that
    the scheme names is quantized. After `annotate`, `layers` are the quantized layers and `reasons` has for each
    other operator on float tensors the reason why it is not among them; with `compare`, `float_module` is the float
    graph with the same nodes.
    """

    def __init__(
        self,
        scheme: QuantizationScheme,
        kept: Callable[[Node], str | None],
        *,
        trial: Trial | None = None,
        qat: bool = False,
        compare: bool = False,
    ) -> None:
        self.scheme = scheme
        self.float_module: GraphModule | None = None
        self.layers: list[Layer] = []
        self.reasons: dict[Node, str] = {}
        self._kept = kept
        self._trial = trial
        self._qat = qat
        self._compare = compare
        self._order: list[Node] = []
        self._whole: dict[Node, str] = {}
        #: Layers that the backend refuses.
        self._refused: Refusals = {}
        #: Refused operators that only move values, after quantized ones.
        self._barred: set[Node] = set()
        #: Operators with a rule, but without a quantized input.
        self._without_inputs: set[Node] = set()

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Called after batch norms are folded: renames in-place operators, turns numbers into tensors if required.

        Operators that the scheme takes apart are replaced by their parts.
        """
        normalize(model)
        products_to_linear(model, self.scheme, self._kept)
        apart = Apart(model, self.scheme, self._kept)
        self._settle(model, apart)
        self._whole = apart.whole
        candidates, _ = find_layers(model, self.scheme, self._kept, self._refused)
        numbers_to_tensors(model, [layer.anchor for layer in candidates if layer.rule.numbers])
        if self._compare:
            self.float_module = copied(model)
            give_own_state(self.float_module)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Write the annotations into the graph."""
        self.layers, self.reasons, points = self._placed(model)
        self.reasons.update((node, reason) for node, reason in self._whole.items() if node in self.reasons)
        ruled = {name for rule in self.scheme.rules for name in rule.operators}
        unquantized = {node for node in self.reasons if node not in self._without_inputs}
        self._barred = {
            node
            for node in unquantized
            if self._kept(node) is None
            and not ruled.isdisjoint(names(node))
            and any(map(points.has, node.all_input_nodes))
        }
        _write(model, points, self._qat)
        self._order = list(model.graph.nodes)
        return model

    def _settle(self, model: GraphModule, apart: Apart) -> None:
        """Remove layers that the backend refuses, and ask again, until nothing changes.

        A refusal may affect the neighbors: those that share parameters with them, and the rule that is tried next.
        """
        refused: Refusals | None = None
        while self._trial is not None and refused != {}:
            layers, _, points = self._placed(model)
            refused = self._trial.refusals(model, layers, points)
            self._refused.update(refused)
            apart.put_back({node: reason for (node, _), reason in refused.items()})

    def _placed(self, model: GraphModule) -> tuple[list[Layer], dict[Node, str], Points]:
        """The layers that the scheme quantizes, the reasons of the other operators, and the quantized tensors."""
        candidates, reasons = find_layers(model, self.scheme, self._kept, self._refused)
        points = Points()
        layers: list[Layer] = []
        self._without_inputs = set()
        for layer in candidates:
            reason = _integers_already(layer) or points.add(layer)
            if reason is None:
                layers.append(layer)
                continue
            self._without_inputs.add(layer.anchor)
            reasons.update(dict.fromkeys(layer.nodes, self._refusal(layer) or reason))
        return layers, reasons, points

    def _refusal(self, layer: Layer) -> str | None:
        """The reason why the backend refuses a layer by another rule."""
        return next((reason for (node, _), reason in self._refused.items() if node is layer.anchor), None)

    def describe(self) -> tuple[LayerReport, ...]:
        """The layers in the order of the graph, quantized or not; of operators that only move values, the obstacles."""
        reports = {layer.anchor: described(layer.nodes, "") for layer in self.layers}
        reports |= {node: described((node,), reason) for node, reason in self.reasons.items()}
        return tuple(reports[node] for node in self._order if node in reports and self._is_told(node))

    def _is_told(self, node: Node) -> bool:
        """True if the report lists an operator that only moves values: its rule refuses it between quantized ones."""
        if short_name(node) not in MOVING_OPERATORS:
            return True
        return node in self._barred

    def validate(self, model: GraphModule) -> None:
        """No-op: declarations are checked on construction."""


def _integers_already(layer: Layer) -> str | None:
    given = None if layer.weight is None else given_integers(layer.weight)
    return None if given is None else f"its weight is {given} already, which schemes of weights keep"


def described(nodes: Sequence[Node], reason: str) -> LayerReport:
    """The row of a report for nodes that are one layer; `reason` is "" if it is quantized."""
    stack = nodes[0].meta.get("nn_module_stack") or {}
    path = next(reversed([str(entry[0]) for entry in stack.values()]), "")
    operators = " + ".join(short_name(node) for node in nodes)
    return LayerReport(path, operators, nodes[-1].name, nodes[0].name, not reason, reason)


def _write(model: GraphModule, points: Points, qat: bool) -> None:
    """Write annotations into the graph. Others refer to the first point of their group, in torchao's order."""
    first: dict[Point, Point] = {}
    edges = points.edges()

    def specified(point: Point) -> Any:
        root = points.root(point)
        if root in first:
            return SharedQuantizationSpec(first[root])
        first[root] = point
        return specification(points.of(root), qat)

    for node in model.graph.nodes:
        inputs: dict[Node, Any] = {value: specified((value, node)) for value in edges.get(node, ())}
        if node in points.biases:
            layer = points.biases[node]
            assert layer.bias is not None
            inputs[layer.bias] = _bias_specification(layer)
        output = specified(node) if points.has(node) else None
        if inputs or output is not None:
            node.meta["quantization_annotation"] = QuantizationAnnotation(
                input_qspec_map=inputs, output_qspec=output, allow_implicit_sharing=False, _annotated=True
            )


def specification(given: TensorQuantization, qat: bool) -> Any:
    """torchao's QuantizationSpec for a declaration. The axis of channels must be known."""
    dtype = storage(given)
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


def _bias_specification(layer: Layer) -> DerivedQuantizationSpec:
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
