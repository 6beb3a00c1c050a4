"""Weight-only schemes, and weights with activations that are quantized at run time, row by row or sample by sample.

The graph gets the operators that exported torchao `quantize_` configs consist of (choose_qparams_affine,
quantize_affine, dequantize_affine), with the same numbers, but plain tensors as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from delegatekit_api.schemes import QuantizationScheme, TensorQuantization

from .affine import (
    Given,
    Weights,
    channel_axis,
    dequantize,
    given_integers,
    input_axis,
    is_quantized_so,
    quantize_in_each_call,
    shared_axes,
    storage,
    unconverted,
)
from .annotator import described
from .graph import constant_name, free_name, short_name
from .patterns import ROLES, Layer, Refusals, channel_dimension, find_layers
from .report import LayerReport
from .trial import Trial


def quantize_weights(
    module: GraphModule,
    scheme: QuantizationScheme,
    kept: Callable[[Node], str | None],
    trial: Trial | None = None,
    weights: Weights | None = None,
) -> tuple[GraphModule, tuple[LayerReport, ...]]:
    """Rewrite a normalized graph by the scheme, as far as the backend supports it: `trial` asks it.

    Returns the new module, and the layers that have weights. With deferred `weights` it keeps the float ones, and
    computes their integers where they are read.
    """
    weights = weights or Weights(module)
    layers, reasons = _settled(module, scheme, kept, trial, weights)
    order = list(module.graph.nodes)
    writer = _Writer(module, weights)
    reports = {node: described((node,), reason) for node, reason in reasons.items() if short_name(node) in ROLES}
    for layer in layers:
        given = layer.weight is not None and given_integers(layer.weight) is not None
        reports[layer.anchor] = replace(described((layer.anchor,), ""), given=given)
        writer.write(layer)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    result = GraphModule(module, module.graph)  # without unused weights
    return result, tuple(reports[node] for node in order if node in reports)


def _settled(
    module: GraphModule,
    scheme: QuantizationScheme,
    kept: Callable[[Node], str | None],
    trial: Trial | None,
    weights: Weights,
) -> tuple[list[Layer], dict[Node, str]]:
    """The layers to quantize, and for each other operator the reason. Refused ones are tried by the next rule."""
    refused: Refusals = {}
    while True:
        layers, reasons = find_layers(module, scheme, kept, refused)
        found = {
            (layer.anchor, layer.rule): reason
            for layer in layers
            if (reason := _obstacle(layer) or weights.obstacle(layer)) is not None
        }
        weights.total = len(layers)
        if not found and trial is not None:
            found = trial.refusals(module, layers, weights)
        if not found:
            return layers, reasons
        refused |= found


def _obstacle(layer: Layer) -> str | None:
    if layer.weight is None or layer.weight_quantization is None:
        return "it has no constant weight"
    if len(layer.weight.meta["val"].shape) < 2:
        return "its weight is a vector"
    given = layer.weight_quantization
    group = given.granularity.group
    size = int(layer.weight.meta["val"].shape[input_axis(layer) if given.table is None else channel_axis(layer)])
    if group is not None and size % group:
        return f"groups of {group} do not divide its {size} {'input' if given.table is None else 'output'} channels"
    if given.table is not None and group is not None and channel_axis(layer):
        return "its output channels are not the first dimension of its weight"
    if given.granularity.kind == "channel" and _has_one_weight_each(layer):
        # torchao treats blocks of one value as a whole tensor.
        return "it has one weight for each channel"
    if layer.rule.input is not None and any(_quantized_before(layer, value) is False for value in layer.inputs):
        return "its input is integers of another form already"
    if layer.rule.input is not None and any(_has_one_value_each(layer, value) for value in layer.inputs):
        return f"its input has one value for each {layer.rule.input.granularity.kind}"
    return None


def _quantized_before(layer: Layer, value: Node) -> bool | None:
    """True if an input is what the rule makes of it already, False if it was quantized in another way."""
    assert layer.rule.input is not None
    axes = shared_axes(layer.rule.input.granularity.kind, value.meta["val"].dim(), channel_dimension(layer.anchor))
    return is_quantized_so(value, axes, layer.rule.input)


def _has_one_value_each(layer: Layer, value: Node) -> bool:
    """True if each block of an input that has a scale of its own is a single value."""
    assert layer.rule.input is not None
    sizes: Sequence[Any] = value.meta["val"].shape
    axes = shared_axes(layer.rule.input.granularity.kind, len(sizes), channel_dimension(layer.anchor))
    single = all(isinstance(sizes[axis], int) and sizes[axis] == 1 for axis in axes)
    return single and not all(isinstance(size, int) and size == 1 for size in sizes)


def _has_one_weight_each(layer: Layer) -> bool:
    """True if each output channel has a single weight."""
    assert layer.weight is not None
    shape = layer.weight.meta["val"].shape
    return int(shape.numel()) == int(shape[channel_axis(layer)])


class _Writer:
    """Puts quantize and dequantize operators into a graph; repeated ones are written once."""

    def __init__(self, module: GraphModule, weights: Weights) -> None:
        self._module = module
        self._known = weights
        self._weights: dict[tuple[Node, TensorQuantization, tuple[int, ...]], Node] = {}
        self._inputs: dict[tuple[Node, TensorQuantization, range], Node] = {}

    def write(self, layer: Layer) -> None:
        """Quantize the weight of a layer, and its input if the rule says so."""
        weight, given = layer.weight, layer.weight_quantization
        assert weight is not None and given is not None
        blocks, parts = self._known.of(layer)
        if (weight, given, tuple(blocks)) not in self._weights:
            self._weights[weight, given, tuple(blocks)] = self._constant(weight, given, blocks, parts)
        layer.anchor.replace_input_with(weight, self._weights[weight, given, tuple(blocks)])
        wanted = layer.rule.input
        for value in layer.inputs if wanted is not None else ():
            assert wanted is not None
            if _quantized_before(layer, value):
                continue
            rank = value.meta["val"].dim()
            axes = shared_axes(wanted.granularity.kind, rank, channel_dimension(layer.anchor))
            if (value, wanted, axes) not in self._inputs:
                self._inputs[value, wanted, axes] = self._dynamic(value, wanted, axes)
            layer.anchor.replace_input_with(value, self._inputs[value, wanted, axes])

    def _constant(
        self,
        weight: Node,
        given: TensorQuantization,
        blocks: list[int],
        parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> Node:
        if (ready := given_integers(weight)) is not None:
            return self._given(ready, weight, given, blocks, parts)
        name = constant_name(weight).replace(".", "_")
        if self._known.deferred or given.table is not None:
            return self._computed(name, weight, given, blocks, parts)
        with self._module.graph.inserting_after(weight):
            constants = [
                self._buffer(f"{name}_{part}", tensor)
                for part, tensor in zip(("quantized", "scale", "zero_point"), parts, strict=True)
            ]
        integers, scale, zero_point = constants
        # Each was inserted right after the weight, so the first is the last.
        found: Node = dequantize(_Calls(self._module, integers), integers, blocks, scale, zero_point, given)
        return found

    def _given(
        self,
        found: Given,
        weight: Node,
        given: TensorQuantization,
        blocks: list[int],
        parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> Node:
        """The dequantized integers that the weight is already."""
        name = constant_name(found.integers).replace(".", "_")
        with self._module.graph.inserting_after(weight):
            scales, zeros = self._buffer(f"{name}_scale", parts[1]), self._buffer(f"{name}_zero_point", parts[2])
        node: Node = dequantize(_Calls(self._module, scales), found.integers, blocks, scales, zeros, given)
        return node

    def _computed(
        self,
        name: str,
        weight: Node,
        given: TensorQuantization,
        blocks: list[int],
        parts: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> Node:
        """The dequantized integers: deferred ones are computed from the weight at each use, places are converted."""
        integers, scale, zero_point = parts
        has_zeros, deferred = given.table is None, self._known.deferred
        with self._module.graph.inserting_after(weight):
            if not deferred:
                places = self._buffer(f"{name}_quantized", integers)
            scales = self._buffer(f"{name}_{'scale' if has_zeros else 'tables'}", scale)
            zeros = self._buffer(f"{name}_zero_point", zero_point) if has_zeros else None
        call = _Calls(self._module, places if not deferred else scales)
        if not deferred:
            made = call(torch.ops.aten.to.dtype, (places, torch.int32))
        elif has_zeros:
            arguments = (unconverted(weight), blocks, scales, zeros, storage(given), *given.range)
            made = call(torch.ops.delegatekit.quantize_weight.default, arguments)
        else:
            made = call(torch.ops.delegatekit.places_in_tables.default, (unconverted(weight), scales))
        found: Node = dequantize(call, made, blocks, scales, zeros, given)
        return found

    def _buffer(self, name: str, tensor: torch.Tensor) -> Node:
        free = free_name(self._module, name)
        self._module.register_buffer(free, tensor)
        return self._module.graph.get_attr(free)

    def _dynamic(self, value: Node, given: TensorQuantization, axes: range) -> Node:
        call = _Calls(self._module, value)
        blocks: list[Any] = [1] * value.meta["val"].dim()
        for axis in axes:
            size = blocks[axis] = value.meta["val"].shape[axis]
            if not isinstance(size, int):  # it changes from call to call
                blocks[axis] = call(torch.ops.aten.sym_size.int, (value, axis))
                blocks[axis].meta["val"] = size
        integers, scale, zero_point = quantize_in_each_call(call, value, blocks, given)
        found: Node = dequantize(call, integers, blocks, scale, zero_point, given)
        return found


class _Calls:
    """Writes calls into a graph, one after the other, the first after a node."""

    def __init__(self, module: GraphModule, after: Node) -> None:
        self._graph = module.graph
        self._last = after

    def __call__(self, target: Any, arguments: tuple[Any, ...]) -> Node:
        with self._graph.inserting_after(self._last):
            self._last = self._graph.call_function(target, arguments)
        return self._last
