"""The program of a trial: layers as if they were quantized, in the edge dialect."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, Final

import torch
import torch.ao.quantization.fx._decomposed
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegatekit_api import UnsupportedError
from delegatekit_api.nodes import is_dynamic
from delegatekit_api.schemes import TensorQuantization

from ..edge import EdgeMethod
from ..edge.builder import EdgeBuilder, drop_dead, resolve, translating
from ..edge.decompose import Decomposer
from ..edge.rules import RULES
from ..edge.sizes import is_size
from .affine import Weights, dequantize, quantize_in_each_call, shared_axes, storage
from .graph import constants, evaluate, is_dropout, is_number, short_name
from .patterns import Layer, channel_dimension
from .points import Points

#: The width of the range of a placeholder.
_SPAN: Final = 4.0
#: Constants with more elements than this are placeholders, too: their values do not affect support.
_FEW: Final = 1 << 12
#: The parameters of a tensor as integers: scale, zero point, smallest and largest integer, dtype.
_Parameters = tuple[Any, Any, int, int, torch.dtype]

_Q: Final = torch.ops.quantized_decomposed


class TrialProgram:
    """A trial under construction.

    Nodes of a layer have its number as debug handle. The quantize of a layer's operand has 0, as it belongs to another
    layer or to the program's border; so do operators that the backend neither keeps whole nor sees as conversions.
    """

    def __init__(
        self, module: GraphModule, form: Points | Weights, keep: Collection[str], decomposer: Decomposer
    ) -> None:
        #: Layers that the edge dialect cannot express, by number, with the reasons.
        self.refused: dict[int, str] = {}
        self._module = module
        self._form = form
        self._keep = keep
        self._fixed = constants(module, every=True, made=True)
        values = [node.meta.get("val") for node in module.graph.nodes]
        self._builder = EdgeBuilder(detect_fake_mode(values), RULES, decomposer, resolve(keep))
        self._number = 0
        self._origin: Node | None = None
        self._inputs: list[Node] = []
        self._outputs: list[Any] = []
        #: Exported node -> its value in the program, in float; and its integers, if it is quantized.
        self._values: dict[Node, Any] = {}
        self._integers: dict[Node, Any] = {}
        self._scales: dict[Any, float] = {}
        # The sizes that change are those of the program's inputs.
        for node in module.graph.nodes:
            if node.op == "placeholder" and is_dynamic(node.meta.get("val")):
                self._value(node, "_float")

    def finish(self) -> EdgeMethod:
        """The program: the results of all layers are its outputs."""
        outputs = tuple(dict.fromkeys(item for item in self._outputs if isinstance(item, Node)))
        self._builder.graph.output(outputs)
        fixed = drop_dead(self._builder, keep=set(self._inputs))
        return EdgeMethod("trial", self._builder.graph, fixed, {}, tuple(self._inputs), outputs)

    def add(self, number: int, layer: Layer) -> None:
        """Write a layer as if it were quantized."""
        self._number, self._origin = number, layer.anchor
        try:
            with translating(self._builder):
                self._add(layer)
        except UnsupportedError as error:
            self.refused[number] = error.what
            for node in layer.nodes:  # its readers get an input
                self._values.pop(node, None)

    def _add(self, layer: Layer) -> None:
        known = {value: _named(operand, value) for value, operand in self._operands(layer).items()}
        for node in layer.nodes:
            if short_name(node) == "batch_norm" and node is not layer.anchor:  # in training: it is folded later
                self._values[node] = self._values[layer.anchor]
                continue
            if is_dropout(node):  # removed when the model is converted
                self._values[node] = known.get(node.all_input_nodes[0]) or self._value(node.all_input_nodes[0])
                continue
            args: Any = map_arg(node.args, lambda item: known.get(item) or self._value(item))
            kwargs: Any = map_arg(node.kwargs, self._value)
            if node is layer.anchor and layer.rule.numbers and layer.rule.input is not None:
                args = tuple(self._number_operand(item, layer.rule.input) for item in args[:2]) + args[2:]
            value = self._written(self._number, node.target, args, kwargs, node.meta.get("val"))
            self._values[node] = _named(value, node)
        for node in layer.outputs:
            if node not in self._values:  # one of several results
                pick = (self._values[layer.last], node.args[1])
                self._values[node] = self._written(self._number, operator.getitem, pick, {}, node.meta["val"])
            if isinstance(self._form, Points) and self._form.has(node):
                self._integers[node] = self._quantized(self._values[node], self._parameters(node), own=True)
        results = [self._integers.get(node, self._values[node]) for node in layer.outputs or (layer.last,)]
        self._outputs += results

    # -- operands --------------------------------------------------------------------------------------------------

    def _operands(self, layer: Layer) -> dict[Node, Any]:
        """The operands of a layer's operator that are quantized, as numbers again."""
        if isinstance(self._form, Weights):
            return self._affine_operands(layer, self._form)
        found = {
            value: self._quantized_operand(value, layer.anchor)
            for value in layer.anchor.all_input_nodes
            if self._form.has((value, layer.anchor))
        }
        if layer.anchor in self._form.biases and layer.bias is not None and layer.weight is not None:
            scale = self._parameters((layer.inputs[0], layer.anchor))[0]
            per_channel = self._form.of((layer.weight, layer.anchor)).granularity.kind == "channel"
            weight_scale = self._parameters((layer.weight, layer.anchor))[0]
            low, high = layer.rule.bias.range if layer.rule.bias is not None else (0, 0)
            step = weight_scale * scale
            zero = torch.zeros(len(step), dtype=torch.int64) if per_channel else 0
            found[layer.bias] = self._constant_integers(layer.bias, (step, zero, low, high, torch.int32), 0)
        return found

    def _quantized_operand(self, value: Node, user: Node) -> Any:
        """The operand of a user, dequantized from the required form."""
        assert isinstance(self._form, Points)
        edge = (value, user)
        given, parameters = self._form.of(edge), self._parameters(edge)
        if value in self._fixed:
            axis = given.granularity.axis or 0
            return self._constant_integers(value, parameters, axis, given)
        if given.dynamic:
            return self._found_in_each_call(self._value(value, "_float"), given)
        same = value in self._integers and self._form.root(value) == self._form.root(edge)
        integers = self._integers[value] if same else self._quantized(self._value(value, "_float"), parameters)
        return self._dequantized(integers, parameters)

    def _affine_operands(self, layer: Layer, weights: Weights) -> dict[Node, Any]:
        assert layer.weight is not None and layer.weight_quantization is not None
        blocks, parts = weights.of(layer)
        if layer.weight_quantization.table is not None:  # places are looked up as int32
            parts = (torch.zeros((), dtype=torch.int32).expand(parts[0].shape), *parts[1:])
        held = [self._builder.constant(part) for part in parts]
        own = partial(self._conversion, self._number)
        found = {layer.weight: dequantize(own, held[0], blocks, held[1], held[2], layer.weight_quantization)}
        given = layer.rule.input
        for value in layer.inputs if given is not None else ():
            assert given is not None
            source, sizes = self._value(value, "_float"), value.meta["val"].shape
            axes = shared_axes(given.granularity.kind, len(sizes), channel_dimension(layer.anchor))
            blocks = [size if axis in axes else 1 for axis, size in enumerate(sizes)]
            integers, scale, zero_point = quantize_in_each_call(partial(self._conversion, 0), source, blocks, given)
            found[value] = dequantize(own, integers, blocks, scale, zero_point, given)
        return found

    def _number_operand(self, item: Any, given: TensorQuantization) -> Any:
        """A Python number as a quantized constant, as `numbers_to_tensors` makes it; others stay as they are."""
        return self._held(torch.tensor([float(item)]), given) if is_number(item) else item

    def _held(self, data: torch.Tensor, given: TensorQuantization) -> Any:
        """A constant as integers of its own range, and numbers again."""
        low, high = given.range
        least, most = min(0.0, float(data.min())), max(0.0, float(data.max()))
        if given.symmetric:
            least, most = -max(-least, most), max(-least, most)
        scale = max((most - least) / (high - low), given.eps)
        zero_point = _middle(given) if given.symmetric else min(high, max(low, round(low - least / scale)))
        integers = (data / scale).round().add(zero_point).clamp(low, high).to(storage(given))
        return self._dequantized(self._builder.constant(integers), (scale, zero_point, low, high, storage(given)))

    def _constant_integers(
        self, value: Node, parameters: _Parameters, axis: int, given: TensorQuantization | None = None
    ) -> Any:
        """A constant, or a placeholder for its integers, as numbers."""
        scale, zero_point, low, high, dtype = parameters
        if isinstance(scale, torch.Tensor):
            integers = self._builder.constant(self._ones(value, dtype))
            held = [self._builder.constant(item) for item in (scale, zero_point)]
            arguments = (integers, *held, axis, low, high, dtype)
            return self._conversion(self._number, _Q.dequantize_per_channel.default, arguments)
        if given is not None and given.scale is None and value.meta["val"].numel() <= _FEW:
            return self._held(evaluate(self._module, value).detach().float(), given)
        return self._dequantized(self._builder.constant(self._ones(value, dtype)), parameters)

    def _ones(self, value: Node, dtype: torch.dtype) -> torch.Tensor:
        return torch.ones((), dtype=dtype).expand(value.meta["val"].shape)

    # -- numbers and integers --------------------------------------------------------------------------------------

    def _parameters(self, point: Any) -> _Parameters:
        """The placeholders of a quantized tensor; those of one group are the same, and of no other."""
        assert isinstance(self._form, Points)
        given, root = self._form.of(point), self._form.root(point)
        low, high = given.range
        if root not in self._scales:
            self._scales[root] = _SPAN / (high - low) * (1 + len(self._scales) / (1 << 16))
        scale = self._scales[root]
        if given.granularity.kind == "channel":
            channels = point[0].meta["val"].shape[given.granularity.axis or 0]
            zeros = torch.full((channels,), _middle(given), dtype=torch.int64)
            return torch.full((channels,), scale), zeros, low, high, storage(given)
        if given.scale is not None and given.zero_point is not None:
            return given.scale, given.zero_point, low, high, storage(given)
        # Not in the middle, as in real programs: a backend may take symmetric integers only.
        zero_point = _middle(given) if given.symmetric else low + (high - low) // 3
        return scale, zero_point, low, high, storage(given)

    def _quantized(self, value: Any, parameters: _Parameters, *, own: bool = False) -> Any:
        return self._conversion(
            self._number if own else 0, _Q.quantize_per_tensor.default, (value, *parameters), parameters[-1]
        )

    def _dequantized(self, integers: Any, parameters: _Parameters) -> Any:
        return self._conversion(self._number, _Q.dequantize_per_tensor.default, (integers, *parameters), torch.float32)

    def _found_in_each_call(self, value: Any, given: TensorQuantization) -> Any:
        """A value rounded to integers with one dynamic scale, as numbers."""
        dtype, (low, high) = storage(given), given.range
        chosen = self._conversion(0, _Q.choose_qparams.tensor, (value, low, high, given.eps, dtype))
        scale, zero_point = (self._conversion(0, operator.getitem, (chosen, index)) for index in (0, 1))
        bounds = (scale, zero_point, low, high, dtype)
        integers = self._conversion(0, _Q.quantize_per_tensor.tensor, (value, *bounds))
        return self._conversion(self._number, _Q.dequantize_per_tensor.tensor, (integers, *bounds))

    def _conversion(self, number: int, target: Any, arguments: tuple[Any, ...], dtype: Any = None) -> Any:
        """Write a conversion from or to integers; to a dtype, of a tensor of the same sizes."""
        value = self._affine_value(target, arguments)
        if dtype is not None:
            value = self._builder.fake(arguments[0].meta["val"].shape, dtype)
        is_seen = str(target) in self._keep
        return self._written(number if is_seen else 0, target, arguments, {}, value)

    def _affine_value(self, target: Any, arguments: tuple[Any, ...]) -> Any:
        """The fake value of one of torchao's operators, which PyTorch is slow to infer; None for others."""
        fake = self._builder.fake
        match str(target):
            case "torchao.choose_qparams_affine.default":
                value, _, blocks, *_, dtype = arguments
                # Dimensions that a block covers are left out, but those of size 1 are not.
                sizes = zip(value.meta["val"].shape, blocks, strict=True)
                shape = tuple(size for size, block in sizes if isinstance(block, int) and block == 1)
                return fake(shape, torch.float32), fake(shape, dtype)
            case "torchao.quantize_affine.default":
                return fake(arguments[0].meta["val"].shape, arguments[4])
            case "torchao.dequantize_affine.default" | "quant.dequantize_codebook.default":
                return fake(arguments[0].meta["val"].shape, torch.float32)
        return None

    def _value(self, node: Node, suffix: str = "") -> Any:
        """The value of an exported node as read in float.

        An input of the program gets a suffix to its name, so that its quantized value can have the name.
        """
        value = node.meta.get("val")
        if is_size(value) or isinstance(value, int | float):
            return value
        if node in self._integers:
            return _named(self._dequantized(self._integers[node], self._parameters(node)), node)
        if node not in self._values:
            if node in self._fixed:
                self._values[node] = self._builder.constant(evaluate(self._module, node))
            else:
                fake = self._builder.fake(value.shape, value.dtype)  # type: ignore[union-attr]
                self._values[node] = self._builder.input(node.name + suffix, fake)
                self._inputs.append(self._values[node])
        return self._values[node]

    def _written(self, number: int, target: Any, args: Any, kwargs: Mapping[str, Any], value: Any) -> Any:
        assert self._origin is not None
        self._builder.start(self._origin, number)
        return self._builder.translate(target, args, dict(kwargs), value)


def _named(operand: Any, value: Node) -> Any:
    """The operand under the name of the exported value (or that with a number), for use in reasons."""
    if isinstance(operand, Node) and operand.op == "call_function":
        operand._rename(value.name)
    return operand


def _middle(given: TensorQuantization) -> int:
    """The zero point of symmetric integers: 0, or the middle of the unsigned range."""
    return 1 << (int(given.dtype.removeprefix("uint")) - 1) if given.dtype.startswith("uint") else 0
