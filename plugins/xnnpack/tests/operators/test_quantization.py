"""Quantized operators, in the stock runtime, against the arithmetic that the program defines (PyTorch's own)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_xnnpack.ir.types import DataType

quantized = torch.ops.quantized_decomposed
Parameters = tuple[float, int]


def parameters(x: torch.Tensor) -> Parameters:
    """Scale and zero point for the range of a tensor."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = float(torch.tensor((high - low) / 255))
    return scale, round(-128 - low / scale)


def rounded(x: torch.Tensor, to: Parameters) -> torch.Tensor:
    """The numbers that int8 with these parameters can represent."""
    integers = quantized.quantize_per_tensor.default(x, *to, -128, 127, torch.int8)
    return quantized.dequantize_per_tensor.default(integers, *to, -128, 127, torch.int8)


class Quantized(nn.Module):
    """function(inputs, weight, bias) with int8 inputs, weight (one scale for each index of `axis`) and result."""

    def __init__(
        self,
        function: Callable[..., torch.Tensor],
        inputs: Sequence[torch.Tensor],
        weight: torch.Tensor | None = None,
        *,
        bias: torch.Tensor | None = None,
        axis: int | None = 0,
        keeps_parameters: bool = False,
    ) -> None:
        super().__init__()
        self.function, self.axis, self.has_weight = function, axis, weight is not None
        self.inputs = [parameters(x) for x in inputs]
        if weight is not None:
            others = [dim for dim in range(weight.dim()) if dim != axis]
            scales = weight.abs().amax(others, keepdim=True) / 127
            self.register_buffer("weight", (weight / scales).round().to(torch.int8))
            self.register_buffer("scales", scales.reshape(-1))
            self.register_buffer("zeros", torch.zeros(scales.numel(), dtype=torch.int64))
            self.bias, self.scale = bias, float(scales.reshape(-1)[0])
        exact = function(*self.operands(inputs))
        self.output = self.inputs[0] if keeps_parameters else parameters(exact)

    def operands(self, inputs: Sequence[torch.Tensor]) -> list[Any]:
        """Inputs, weight and bias as numbers."""
        operands: list[Any] = [rounded(x, to) for x, to in zip(inputs, self.inputs, strict=True)]
        if not self.has_weight:
            return operands
        if self.axis is None:
            weight = quantized.dequantize_per_tensor.default(self.weight, self.scale, 0, -127, 127, torch.int8)
        else:
            arguments = (self.scales, self.zeros, self.axis, -127, 127, torch.int8)
            weight = quantized.dequantize_per_channel.default(self.weight, *arguments)
        return [*operands, weight, self.bias]

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return rounded(self.function(*self.operands(inputs)), self.output)


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


@pytest.fixture
def computes_on_integers(lower_whole: Callable[..., Any]) -> Callable[..., Any]:
    """computes_on_integers(module, *inputs): all nodes but conversions return int8; off by at most one step."""

    def check(module: Quantized, *inputs: torch.Tensor, floats: bool = False, ties: bool = False) -> Any:
        lowered = lower_whole(module, *inputs)
        (result,) = lowered.run()
        wanted = module(*inputs)
        # Both round a sum to the nearest step, from float32 numbers that differ in the last place.
        steps = ((result - wanted) / module.output[0]).abs().max()
        assert steps <= 1.0 + 1e-4, f"{float(steps)} steps"
        assert ties or (result != wanted).float().mean() < 0.05
        (ours,) = (delegatekit.load(lowered.buffer)["forward"](*inputs),)
        assert torch.equal(ours, result)
        values = {value.id_out: value for value in map(_tensor, lowered.graph.xvalues)}
        for node in lowered.graph.xnodes:
            table = node.xnode_union
            datatype = values[table.output_id].datatype
            if type(table).__name__ != "Convert":
                assert (datatype == DataType.FLOAT32) is floats, type(table).__name__
        return lowered

    return check


def _tensor(value: Any) -> Any:
    union = value.xvalue_union
    return getattr(union, "tensor_value", union)


WEIGHTED = {
    "linear": (F.linear, x(3, 16), x(8, 16)),
    "linear of rank 3, relu": (lambda *a: F.relu(F.linear(*a)), x(2, 3, 16), x(8, 16)),
    "convolution": (lambda *a: F.conv2d(*a, padding=1), x(1, 3, 8, 8), x(8, 3, 3, 3)),
    "convolution, relu6": (lambda *a: F.relu6(F.conv2d(*a, stride=2)), x(1, 4, 9, 9), x(8, 4, 3, 3)),
    "convolution, clamp": (lambda *a: F.conv2d(*a).clamp(-1, 2), x(1, 4, 9, 9), x(8, 4, 3, 3)),
    "groups": (lambda *a: F.conv2d(*a, groups=2), x(2, 4, 8, 8), x(8, 2, 3, 3)),
    "depthwise": (lambda *a: F.conv2d(*a, groups=4, padding=1), x(1, 4, 8, 8), x(4, 1, 3, 3)),
    "depthwise, two of each": (lambda *a: F.conv2d(*a, groups=4, dilation=2), x(1, 4, 8, 8), x(8, 1, 3, 3)),
    "padded": (lambda x, w, b: F.conv2d(F.pad(x, (1, 0, 2, 1)), w, b), x(1, 4, 8, 8), x(8, 4, 3, 3)),
    "one-dimensional": (lambda *a: F.conv1d(*a, padding=1), x(1, 4, 8), x(8, 4, 3)),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("axis", [0, None], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_products_with_weights_compute_on_integers(name, axis, bias, computes_on_integers):
    function, inputs, weight = WEIGHTED[name]
    shift = x(weight.shape[0]) if bias else None
    lowered = computes_on_integers(Quantized(function, [inputs], weight, bias=shift, axis=axis), inputs)
    assert lowered.nodes["Convert"] == 2


@pytest.mark.parametrize("axis", [1, None], ids=["per channel", "per tensor"])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolutions_compute_on_integers(groups, axis, computes_on_integers):
    def call(*operands):
        return F.conv_transpose2d(*operands, stride=2, output_padding=1, groups=groups)

    inputs, weight = x(1, 4, 5, 5), x(4, 6 // groups, 3, 3)
    computes_on_integers(Quantized(call, [inputs], weight, bias=x(6), axis=axis), inputs)


@pytest.mark.parametrize("axis", [1, None], ids=["per channel", "per tensor"])
def test_products_with_a_weight_stored_the_other_way_round_compute_on_integers(axis, computes_on_integers):
    def call(rows, weight, bias):
        return torch.addmm(bias, rows, weight)

    inputs = x(3, 16)
    computes_on_integers(Quantized(call, [inputs], x(16, 8), bias=x(8), axis=axis), inputs)


def test_scales_of_input_channels_are_no_scales_of_a_product(computes_on_integers):
    inputs = x(3, 16)
    computes_on_integers(Quantized(F.linear, [inputs], x(8, 16), axis=1), inputs, floats=True)


@pytest.mark.parametrize("axis", [0, None], ids=["per channel", "per tensor"])
def test_a_product_whose_steps_are_far_larger_than_the_outputs_computes_on_numbers(axis, lower_whole):
    # XNNPACK does not load it on integers: 256 steps of the output for one of the sums.
    inputs = x(3, 16)
    module = Quantized(F.linear, [inputs], x(8, 16), axis=axis)
    module.output = (module.inputs[0][0] * module.scale / 300, 0)
    lowered = lower_whole(module, inputs)
    (result,) = lowered.run()
    torch.testing.assert_close(result, module(inputs), rtol=1e-6, atol=0)


def test_a_bias_beyond_32_bits_is_added_as_a_number(lower_whole):
    inputs, weight = 1e-6 * x(3, 16), 1e-6 * x(8, 16)
    module = Quantized(F.linear, [inputs], weight, bias=100 * x(8))
    lowered = lower_whole(module, inputs)
    (result,) = lowered.run()
    assert ((result - module(inputs)).abs() <= module.output[0] * 1.001).all()


@pytest.mark.parametrize("slope", [0.1, 300.0])
@pytest.mark.parametrize("ratio", [2.0**-12, 1.0, 2.0**7, 2.0**9])
def test_steps_of_very_different_size_give_right_numbers(slope, ratio, lower_whole):
    """One step of the input is `ratio` steps of the output."""

    class Apart(nn.Module):
        def forward(self, inputs: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
            first, scale = rounded(inputs, (2.0**-5, 3)), 2.0**-5 / ratio
            second = rounded(other, (2.0**-5, -7))
            results = (first, F.leaky_relu(first, slope), first + second, first * second, torch.cat([first, second]))
            return tuple(rounded(result, (scale, 1)) for result in results)

    inputs = (2 * x(3, 16), 2 * x(3, 16, seed=1))
    lowered = lower_whole(Apart(), *inputs)
    for result, wanted in zip(lowered.run(), Apart()(*inputs), strict=True):
        assert (result - wanted).abs().max() <= 2.0**-5 / ratio * 1.001


ELEMENTWISE = {
    "add": (torch.add, [x(2, 3, 4), x(2, 3, 4, seed=1)]),
    "add, broadcast": (torch.add, [x(2, 3, 4), x(4)]),
    "add, relu": (lambda a, b: F.relu(a + b), [x(2, 3, 4), x(2, 3, 4, seed=1)]),
    "sub": (torch.sub, [x(2, 3, 4), x(2, 3, 4, seed=1)]),
    "mul": (torch.mul, [x(2, 3, 4), x(2, 3, 1)]),
    "div": (torch.div, [x(2, 3, 4), x(2, 3, 4).abs() + 1]),
    "maximum": (torch.maximum, [x(2, 3, 4), x(2, 3, 4, seed=1)]),
    "minimum": (torch.minimum, [x(2, 3, 4), x(2, 3, 4, seed=1)]),
    "times a number": (lambda a: a * -0.5, [x(2, 3, 4)]),
    "over a number": (lambda a: a / 3.0, [x(2, 3, 4)]),
    "cat": (lambda a, b: torch.cat([a, b], 1), [x(2, 3, 4), 3 * x(2, 5, 4)]),
    "sigmoid": (torch.sigmoid, [3 * x(2, 3, 8)]),
    "tanh": (torch.tanh, [3 * x(2, 3, 8)]),
    "gelu": (F.gelu, [3 * x(2, 3, 8)]),
    "hardswish": (F.hardswish, [3 * x(2, 3, 8)]),
    "elu": (F.elu, [3 * x(2, 3, 8)]),
    "leaky_relu": (F.leaky_relu, [3 * x(2, 3, 8)]),
    "exp": (torch.exp, [x(2, 3, 8)]),
    "log": (torch.log, [x(2, 3, 8).abs() + 1]),
    "abs": (torch.abs, [x(2, 3, 8)]),
    "neg": (torch.neg, [x(2, 3, 8)]),
    "square": (torch.square, [x(2, 3, 8)]),
    "sqrt": (torch.sqrt, [x(2, 3, 8).abs()]),
    "mean": (lambda a: a.mean((1,)), [x(2, 3, 8)]),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_operators_with_another_scale_after_them_compute_on_integers(name, computes_on_integers):
    function, inputs = ELEMENTWISE[name]
    computes_on_integers(Quantized(function, inputs), *inputs)


MOVING = {
    "maximum pooling": (lambda a: F.max_pool2d(a, 3, 2, 1), x(1, 3, 8, 8)),
    "relu": (F.relu, x(2, 3, 8)),
    "reshape": (lambda a: a.reshape(2, 12), x(2, 3, 4)),
    "permute": (lambda a: a.permute(2, 0, 1), x(2, 3, 4)),
    "slice": (lambda a: a[:, 1:, ::2], x(2, 3, 4)),
    "pad": (lambda a: F.pad(a, (1, 2)), x(2, 3, 4)),
}


@pytest.mark.parametrize("name", MOVING)
def test_what_keeps_the_parameters_moves_integers(name, computes_on_integers):
    function, inputs = MOVING[name]
    computes_on_integers(Quantized(function, [inputs], keeps_parameters=True), inputs)


def test_resizing_moves_integers_and_rounds_ties_up(computes_on_integers):
    # Quarters of integers often end in a half, which PyTorch rounds to even and XNNPACK up.
    inputs = x(1, 2, 4, 4)
    module = Quantized(lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), [inputs], keeps_parameters=True)
    computes_on_integers(module, inputs, ties=True)


class WithConstant(nn.Module):
    """function(inputs, constant), both int8 of any parameters, and the result."""

    def __init__(self, function: Callable[..., torch.Tensor], constant: torch.Tensor, *, keeps: bool) -> None:
        super().__init__()
        self.function, self.of_input = function, parameters(x(1, 3, 8, 8))
        self.of_constant = self.of_input if keeps else parameters(constant)
        integers = quantized.quantize_per_tensor.default(constant, *self.of_constant, -128, 127, torch.int8)
        self.register_buffer("integers", integers)
        self.output = self.of_input if keeps else parameters(function(x(1, 3, 8, 8), constant))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        constant = quantized.dequantize_per_tensor.default(self.integers, *self.of_constant, -128, 127, torch.int8)
        return rounded(self.function(rounded(inputs, self.of_input), constant), self.output)


CONSTANTS = {
    "first of a concatenation": (lambda a, c: torch.cat([c, a], 1), x(1, 2, 8, 8).abs()),
    "last of a concatenation": (lambda a, c: torch.cat([a, c], 1), x(1, 2, 8, 8).abs()),
    "a factor for each channel": (lambda a, c: a * c, x(3, 1, 1) + 2.0),
    "a summand in front": (lambda a, c: c - a, x(3, 8, 8) + 2.0),
    "beside what was moved": (lambda a, c: a.transpose(1, 3) + c, x(8, 1, 3).abs()),
}


@pytest.mark.parametrize("keeps", [True, False], ids=["same parameters", "others"])
@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_operands_are_integers(name, keeps, computes_on_integers):
    function, constant = CONSTANTS[name]
    if keeps:
        constant = constant.clamp(-0.5, 0.5)
    computes_on_integers(WithConstant(function, constant, keeps=keeps), x(1, 3, 8, 8), ties=True)


def test_constant_integers_are_numbers_for_what_computes_on_numbers(lower_whole):
    function, constant = CONSTANTS["first of a concatenation"]
    module = WithConstant(
        lambda a, c: torch.sin(function(a, c)) + c[:, :1] * F.avg_pool2d(c, 3, 1, 1)[:, :1], constant, keeps=False
    )
    inputs = x(1, 3, 8, 8)
    (result,) = lower_whole(module, inputs).run()
    assert (result - module(inputs)).abs().max() <= module.output[0] * 1.001


@pytest.mark.parametrize("function", [lambda a: torch.softmax(a, -1), lambda a: F.layer_norm(a, (8,))])
def test_what_xnnpack_has_no_integers_for_computes_on_numbers_inside_the_delegate(function, computes_on_integers):
    inputs = x(2, 3, 8)
    computes_on_integers(Quantized(function, [inputs]), inputs, floats=True)


def test_a_chain_has_no_conversions_between_its_operators(lower_whole):
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inputs = x(1, 3, 8, 8)
            self.first = Quantized(lambda *a: F.conv2d(*a, padding=1), [inputs], x(8, 3, 3, 3))
            self.second = Quantized(lambda *a: F.relu(F.conv2d(*a)), [self.first(inputs)], x(4, 8, 1, 1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(inputs))

    lowered = lower_whole(Chain(), x(1, 3, 8, 8))
    assert lowered.nodes["Convert"] == 2


def test_ranges_that_xnnpack_has_not_are_left(refusals):
    class Narrow(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            integers = quantized.quantize_per_tensor.default(inputs, 0.1, 0, 0, 255, torch.uint8)
            return quantized.dequantize_per_tensor.default(integers, 0.1, 0, 0, 255, torch.uint8)

    assert any("XNNPACK has int8, -128 to 127" in reason for reason in refusals(Narrow(), x(2, 3)))


def test_integers_that_stand_for_several_numbers_are_each_of_these() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            made = quantized.quantize_per_tensor.default(y, 0.125, 0, -128, 127, torch.int8)
            first, second = (
                quantized.dequantize_per_tensor.default(item, 0.125, 0, -128, 127, torch.int8)
                + quantized.dequantize_per_tensor.default(item, 0.25, 2, -128, 127, torch.int8)
                for item in (x, made)
            )
            return first, second

    inputs = torch.arange(-6, 6, dtype=torch.int8).reshape(3, 4), torch.linspace(-2, 2, 12).reshape(3, 4)
    program = delegatekit.lower(torch.export.export(Model(), inputs, strict=False), backends=["xnnpack"])
    for found, wanted in zip(delegatekit.load(program.buffer)["forward"](*inputs), Model()(*inputs), strict=True):
        assert torch.equal(found, wanted)
