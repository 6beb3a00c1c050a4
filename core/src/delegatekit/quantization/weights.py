"""Weight-only schemes, and weights with activations that are quantized at run time, row by row or sample by sample.

The graph gets the operators that torchao's `quantize_` configs give when they are exported (choose_qparams_affine,
quantize_affine, dequantize_affine), with the numbers that these compute, but plain tensors as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from delegatekit_api import INTEGER_RANGES, QuantizationScheme, TensorQuantization

from . import torchao
from .annotator import STORAGE, described
from .graph import constant_name, evaluate, free_name, short_name
from .patterns import ROLES, Layer, channel_dimension, find_layers
from .report import LayerReport


def quantize_weights(
    module: GraphModule, scheme: QuantizationScheme, kept: Callable[[Node], str | None]
) -> tuple[GraphModule, tuple[LayerReport, ...]]:
    """Rewrite a normalised graph as the scheme says. Returns the new module, and the layers that have weights."""
    layers, reasons = find_layers(module, scheme, kept)
    order = list(module.graph.nodes)
    writer = _Writer(module)
    reports = {node: described((node,), reason) for node, reason in reasons.items() if short_name(node) in ROLES}
    for layer in layers:
        reason = _refusal(layer)
        reports[layer.anchor] = described((layer.anchor,), reason or "")
        if reason is None:
            writer.write(layer)
    module.graph.eliminate_dead_code()
    module.graph.lint()
    result = GraphModule(module, module.graph)  # without the weights that nobody reads any more
    return result, tuple(reports[node] for node in order if node in reports)


def _refusal(layer: Layer) -> str | None:
    if layer.weight is None or layer.weight_quantization is None:
        return "it has no constant weight"
    group = layer.weight_quantization.granularity.group
    size = int(layer.weight.meta["val"].shape[_input_axis(layer)])
    if group is not None and size % group:
        return f"groups of {group} do not divide its {size} input channels"
    if layer.weight_quantization.granularity.kind == "channel" and _has_one_weight_each(layer):
        # torchao takes blocks of one value for a whole tensor.
        return "it has one weight for each channel"
    return None


def _has_one_weight_each(layer: Layer) -> bool:
    """Whether each output channel has a single weight."""
    assert layer.weight is not None
    shape = layer.weight.meta["val"].shape
    return int(shape.numel()) == int(shape[_channel_axis(layer)])


def _channel_axis(layer: Layer) -> int:
    assert layer.weight is not None
    return ROLES[short_name(layer.anchor)].channels % int(layer.weight.meta["val"].dim())


def _input_axis(layer: Layer) -> int:
    return 1 if _channel_axis(layer) == 0 else 0


def block_size(shape: Sequence[int], given: TensorQuantization, channels: int, inputs: int) -> list[int]:
    """The shape of the blocks of a weight that have one scale each, as torchao wants it."""
    sizes = [int(size) for size in shape]
    if given.granularity.kind == "channel":
        sizes[given.granularity.axis if given.granularity.axis is not None else channels] = 1
    elif given.granularity.group is not None:
        sizes[channels] = 1
        sizes[inputs] = given.granularity.group
    return sizes


def _shared_axes(kind: str, rank: int, channels: int) -> range:
    """The dimensions along which all elements of an input share a scale; `channels` counts from behind."""
    if kind == "token":
        return range(rank + channels, rank + channels + 1)
    return range(1 if kind == "sample" else 0, rank)


class _Writer:
    """Puts quantize and dequantize operators into a graph; what is needed twice is written once."""

    def __init__(self, module: GraphModule) -> None:
        torchao.load("quantization.quant_primitives")  # registers the operators
        self._module = module
        self._ops = torch.ops.torchao
        self._weights: dict[tuple[Node, TensorQuantization, tuple[int, ...]], Node] = {}
        self._inputs: dict[tuple[Node, TensorQuantization, range], Node] = {}

    def write(self, layer: Layer) -> None:
        """Quantize the weight of a layer, and its input if the rule says so."""
        weight, given = layer.weight, layer.weight_quantization
        assert weight is not None and given is not None
        blocks = tuple(block_size(weight.meta["val"].shape, given, _channel_axis(layer), _input_axis(layer)))
        if (weight, given, blocks) not in self._weights:
            self._weights[weight, given, blocks] = self._constant(weight, given, list(blocks))
        layer.anchor.replace_input_with(weight, self._weights[weight, given, blocks])
        wanted = layer.rule.input
        for value in layer.inputs if wanted is not None else ():
            assert wanted is not None
            rank = value.meta["val"].dim()
            axes = _shared_axes(wanted.granularity.kind, rank, channel_dimension(layer.anchor))
            if (value, wanted, axes) not in self._inputs:
                self._inputs[value, wanted, axes] = self._dynamic(value, wanted, axes)
            layer.anchor.replace_input_with(value, self._inputs[value, wanted, axes])

    def _constant(self, weight: Node, given: TensorQuantization, blocks: list[int]) -> Node:
        primitives = torchao.load("quantization.quant_primitives")
        values = evaluate(self._module, weight).detach()
        dtype = _storage(given)
        low, high = given.range
        scale, zero_point = primitives.choose_qparams_affine(
            values,
            primitives.MappingType.SYMMETRIC if given.symmetric else primitives.MappingType.ASYMMETRIC,
            tuple(blocks),
            target_dtype=dtype,
            quant_min=low,
            quant_max=high,
            eps=given.eps,
            zero_point_dtype=dtype,
        )
        if zero_point is None:
            zero_point = torch.zeros_like(scale, dtype=dtype)
        integers = primitives.quantize_affine(values, tuple(blocks), scale, zero_point, dtype, low, high)
        name = constant_name(weight).replace(".", "_")
        graph = self._module.graph
        with graph.inserting_after(weight):
            constants = [
                self._buffer(f"{name}_{part}", tensor)
                for part, tensor in (("quantized", integers), ("scale", scale), ("zero_point", zero_point))
            ]
        with graph.inserting_after(constants[0]):  # each was put right behind the weight, so this one is the last
            return graph.call_function(
                self._ops.dequantize_affine.default,
                (constants[0], blocks, constants[1], constants[2], dtype, low, high),
            )

    def _buffer(self, name: str, tensor: torch.Tensor) -> Node:
        free = free_name(self._module, name)
        self._module.register_buffer(free, tensor)
        return self._module.graph.get_attr(free)

    def _dynamic(self, value: Node, given: TensorQuantization, axes: range) -> Node:
        dtype, (low, high) = _storage(given), given.range
        mapping = "SYMMETRIC" if given.symmetric else "ASYMMETRIC"
        graph = self._module.graph
        blocks, last = self._blocks(value, axes)
        with graph.inserting_after(last):
            chosen = graph.call_function(
                self._ops.choose_qparams_affine.default,
                (value, mapping, blocks, dtype, low, high, given.eps, None, dtype),
            )
        with graph.inserting_after(chosen):
            scale = graph.call_function(operator.getitem, (chosen, 0))
        with graph.inserting_after(scale):
            zero_point = graph.call_function(operator.getitem, (chosen, 1))
        with graph.inserting_after(zero_point):
            quantized = graph.call_function(
                self._ops.quantize_affine.default, (value, blocks, scale, zero_point, dtype, low, high)
            )
        with graph.inserting_after(quantized):
            return graph.call_function(
                self._ops.dequantize_affine.default, (quantized, blocks, scale, zero_point, dtype, low, high)
            )

    def _blocks(self, value: Node, axes: range) -> tuple[list[Any], Node]:
        """The sizes of blocks that cover some dimensions of a value, and the last node that they need."""
        blocks: list[Any] = [1] * value.meta["val"].dim()
        last = value
        for axis in axes:
            size = blocks[axis] = value.meta["val"].shape[axis]
            if not isinstance(size, int):  # it changes from call to call
                with self._module.graph.inserting_after(last):
                    last = self._module.graph.call_function(torch.ops.aten.sym_size.int, (value, axis))
                last.meta["val"], blocks[axis] = size, last
        return blocks, last


def _storage(given: TensorQuantization) -> torch.dtype:
    found: torch.dtype = STORAGE.get(given.dtype) or getattr(torch, given.dtype)
    assert given.dtype in INTEGER_RANGES
    return found
