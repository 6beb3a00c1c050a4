"""Weight-only schemes, and weights with activations that are quantized row by row at run time.

The graph gets the operators that torchao's `quantize_` configs give when they are exported (choose_qparams_affine,
quantize_affine, dequantize_affine), with the numbers that these compute, but plain tensors as constants.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

import torch
from torch.fx import GraphModule, Node

from delegatekit_api import INTEGER_RANGES, QuantizationScheme, TensorQuantization

from . import torchao
from .annotator import STORAGE, described
from .graph import evaluate, free_name, short_name
from .patterns import ROLES, Layer, find_layers
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
    """The shape of the blocks that have one scale each, as torchao wants it."""
    kind = given.granularity.kind
    sizes = [int(size) for size in shape]
    if kind == "token":
        return [1] * (len(sizes) - 1) + sizes[-1:]
    if kind == "channel":
        sizes[given.granularity.axis if given.granularity.axis is not None else channels] = 1
    elif given.granularity.group is not None:
        sizes[channels] = 1
        sizes[inputs] = given.granularity.group
    return sizes


class _Writer:
    """Puts quantize and dequantize operators into a graph; what is needed twice is written once."""

    def __init__(self, module: GraphModule) -> None:
        torchao.load("quantization.quant_primitives")  # registers the operators
        self._module = module
        self._ops = torch.ops.torchao
        self._weights: dict[tuple[Node, TensorQuantization, tuple[int, ...]], Node] = {}
        self._inputs: dict[tuple[Node, TensorQuantization], Node] = {}

    def write(self, layer: Layer) -> None:
        """Quantize the weight of a layer, and its input if the rule says so."""
        weight, given = layer.weight, layer.weight_quantization
        assert weight is not None and given is not None
        blocks = tuple(block_size(weight.meta["val"].shape, given, _channel_axis(layer), _input_axis(layer)))
        if (weight, given, blocks) not in self._weights:
            self._weights[weight, given, blocks] = self._constant(weight, given, list(blocks))
        layer.anchor.replace_input_with(weight, self._weights[weight, given, blocks])
        for value in layer.inputs:
            if layer.rule.input is not None:
                if (value, layer.rule.input) not in self._inputs:
                    self._inputs[value, layer.rule.input] = self._dynamic(value, layer.rule.input)
                layer.anchor.replace_input_with(value, self._inputs[value, layer.rule.input])

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
        name = str(weight.target).replace(".", "_") if weight.op == "get_attr" else weight.name
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

    def _dynamic(self, value: Node, given: TensorQuantization) -> Node:
        dtype, (low, high) = _storage(given), given.range
        blocks = block_size(value.meta["val"].shape, given, 0, 0)
        mapping = "SYMMETRIC" if given.symmetric else "ASYMMETRIC"
        graph = self._module.graph
        with graph.inserting_after(value):
            chosen = graph.call_function(
                self._ops.choose_qparams_affine.default,
                (value, mapping, blocks, dtype, low, high, None, None, dtype),
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


def _storage(given: TensorQuantization) -> torch.dtype:
    found: torch.dtype = STORAGE.get(given.dtype) or getattr(torch, given.dtype)
    assert given.dtype in INTEGER_RANGES
    return found
