"""XNNPACK's schemes: the quantized parts of a model, their parameters, and the parts left in float."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import delegatekit
from delegatekit_api import QuantizationError
from delegatekit_xnnpack.schemes import SCHEMES

pytest.importorskip("torchao")


class Fn(nn.Module):
    """A function after a linear layer, which makes the function's input int8."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.function, self.layer = function, layer or nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        return self.function(self.layer(x))


def quantize(model, inputs, scheme="int8", **settings):
    return delegatekit.quantize(model.eval(), inputs, backend="xnnpack", scheme=scheme, **settings)


def integer_types(module):
    """The (dtype, low, high) of quantized values, with their counts."""
    found = Counter()
    for node in module.graph.nodes:
        if str(node.target) == "quantized_decomposed.quantize_per_tensor.default":
            found[tuple(str(item) for item in (node.args[5], *node.args[3:5]))] += 1
    return found


def sqnr(expected, actual):
    return 10 * torch.log10(expected.square().sum() / (expected - actual).square().sum()).item()


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, 3, 8, 8, generator=generator) for _ in range(4)]


def test_the_first_scheme_is_static_int8_with_a_scale_for_each_channel():
    assert [scheme.name for scheme in SCHEMES] == [
        "int8",
        "int8-per-tensor",
        "int8-dynamic",
        "int8-dynamic-int4",
        "int8-dynamic-int4-per-channel",
    ]
    assert SCHEMES[0].kind == "static" and SCHEMES[0].rules[0].weight.granularity.kind == "channel"


@pytest.mark.parametrize("scheme", ["int8", "int8-per-tensor"])
def test_a_convolutional_network_is_int8_from_end_to_end(scheme, images):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(
                nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(inplace=True)
            )
            self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.Hardswish())
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Sigmoid())
            self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
            self.head = nn.Linear(24, 5)

        def forward(self, x):
            y = self.stem(x)
            z = self.depth(F.pad(y, (1, 1, 1, 1)))[..., 1:-1, 1:-1]
            y = F.max_pool2d(self.up(y + z * self.gate(z)), 2)
            y = torch.cat([y.mean((2, 3)), F.adaptive_avg_pool2d(y - z, 1).flatten(1), torch.tanh(y.mean((2, 3)))], 1)
            return self.head(F.leaky_relu(y).unsqueeze(1).squeeze(1))

    model = Net().eval()
    result = quantize(model, images, scheme)
    assert not result.quantization.kept
    assert set(integer_types(result)) == {("torch.int8", "-128", "127")}
    placeholder = next(node for node in result.graph.nodes if node.op == "placeholder")
    assert [str(user.target) for user in placeholder.users] == ["quantized_decomposed.quantize_per_tensor.default"]
    for node in result.graph.nodes:  # no float value between operators
        if str(node.target).startswith("aten.") and "hardtanh" not in node.name:
            for operand in node.all_input_nodes:
                assert "dequantize" in operand.name or operand.op == "get_attr", f"{node} gets {operand} in float"
    assert sqnr(model(images[0]), result(images[0])) > 28


@pytest.mark.parametrize(
    "function, reason",
    [
        (lambda x: F.avg_pool2d(x, 2), "in float, by AvgPooling2d"),
        (lambda x: F.avg_pool2d(x, 8, padding=1), "no int8 kernel for it"),
        (lambda x: F.avg_pool2d(x, 8, divisor_override=3), "divides by the number of elements in the window"),
        (lambda x: F.interpolate(x, scale_factor=1.3, mode="bilinear"), "not the ratio of the sizes"),
        (lambda x: x / (x.abs() + x.abs()), "its divisor may be rounded to 0"),
        (lambda x: x * 0.0, "an operand is a number"),
        (lambda x: x**3, "in float, by Square, Multiply"),
        (lambda x: F.adaptive_avg_pool2d(x, 2), "in float, by AvgPooling2d"),
        (lambda x: x.mean(1), "in float, by FullyConnected"),
        (lambda x: x.flatten(2).mean(2), "in float, by FullyConnected"),
        (lambda x: x.sin(), "no rule for sin"),
        (lambda x: torch.add(x, x, alpha=2), "in float, by Multiply, Add"),
        (lambda x: x + 1.0, "an operand is a number"),
        (lambda x: torch.softmax(x, -1), "no rule for softmax"),
        (lambda x: torch.clamp(x, torch.zeros(1), torch.ones(1)), "in float, by Maximum, Minimum"),
        (lambda x: x.view(1, 2, 2, 2, 2, 4, 4) + x.view(1, 2, 2, 2, 2, 4, 4), "has 7 axes: XNNPACK allows 6"),
    ],
)
def test_what_has_no_kernel_stays_in_float(function, reason, images):
    result = quantize(Fn(function), images)
    assert any(reason in layer.reason for layer in result.quantization.kept), str(result.quantization)


@pytest.mark.parametrize("function", [torch.exp, torch.log, torch.sqrt, torch.square, lambda x: x**2])
def test_what_the_program_is_given_is_not_rounded_for_a_function_of_great_range(function, images):
    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.layer(function(x))

    (kept,) = quantize(Spectrum(), [image.abs() + 0.1 for image in images]).quantization.kept
    assert "in more than eight bits" in kept.reason


FUNCTIONS = {
    "maximum": lambda x: torch.maximum(x, x.flip(2)),
    "minimum": lambda x: torch.minimum(x, x.transpose(2, 3)),
    "neg": torch.neg,
    "exp": torch.exp,
    "log": lambda x: F.hardtanh(x, 0.5, 2.0).log(),
    "sqrt": lambda x: x.abs().sqrt(),
    "square": torch.square,
    "pow 2": lambda x: x**2,
    "times a number": lambda x: F.relu(x * -3),
    "over a number": lambda x: x / 0.3,
    "resized": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "resized, corners aligned": lambda x: F.interpolate(x, size=(9, 7), mode="bilinear", align_corners=True),
    "maxima, sizes rounded up": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "average over all": lambda x: F.avg_pool2d(x, 8),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_go_on_with_integers(name, images):
    model = Fn(FUNCTIONS[name])
    result = quantize(model, images)
    assert not [layer for layer in result.quantization.kept if layer.operator != "flip"], str(result.quantization)
    assert sqnr(model(images[0]), result(images[0])) > 28


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("scheme", ["int8", "int8-per-tensor"])
def test_tiny_activations_keep_their_accuracy(size, scheme, images):
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 1, bias=False)
            self.head = nn.Linear(8, 5, bias=False)

        def forward(self, x):
            y = F.relu(self.first(x))
            y = F.leaky_relu(y + self.second(y), 0.1)
            return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))

    model, inputs = Net().eval(), [size * image for image in images]
    quantized = quantize(model, inputs, scheme)
    loaded = delegatekit.load(delegatekit.lower(quantized, (inputs[0],), backends=["xnnpack"]).buffer)
    for result in (quantized(inputs[0]), loaded["forward"](inputs[0])):
        assert sqnr(model(inputs[0]), result) > 30


def test_a_branch_that_is_zero_leaves_the_others_their_accuracy(images):
    class Net(nn.Module):
        """A residual branch before training."""

        def __init__(self):
            super().__init__()
            self.branch, self.trunk, self.head = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)
            nn.init.zeros_(self.branch.weight)
            nn.init.zeros_(self.branch.bias)

        def forward(self, x):
            return self.head(self.branch(x) + self.trunk(x))

    model = Net().eval()
    quantized = quantize(model, images)
    program = delegatekit.lower(quantized, (images[0],), backends=["xnnpack"])
    assert sqnr(model(images[0]), delegatekit.load(program.buffer)["forward"](images[0])) > 30


def test_clamps_and_pools_keep_the_scale_of_what_they_get(images):
    def function(x):
        return (x, F.max_pool2d(x, 2), x.clamp(-0.5, 0.5), F.hardtanh(x), F.relu6(x), torch.relu(x))

    result = quantize(Fn(function), images)
    scales = {
        node.args[1:3]
        for node in result.graph.nodes
        if str(node.target).startswith("quantized_decomposed.quantize") and node.args[0].op != "placeholder"
    }
    assert len(scales) == 1


def test_a_transformer_layer_keeps_norms_and_attention_in_float():
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").eval()
    inputs = [torch.randn(2, 6, 32) for _ in range(4)]
    result = quantize(model, inputs)
    assert {layer.operator for layer in result.quantization.kept} == {"layer_norm", "scaled_dot_product_attention"}
    assert sqnr(model(inputs[0]), result(inputs[0])) > 28


@pytest.mark.parametrize(
    "scheme, low, block, least",
    [
        ("int8-dynamic", -128, [1, 64], 38),
        ("int8-dynamic-int4", -8, [1, 32], 18),
        ("int8-dynamic-int4-per-channel", -8, [1, 64], 16),
    ],
)
def test_dynamic_schemes_quantize_linear_layers(scheme, low, block, least):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32)).eval()
    x = torch.randn(4, 64)
    result = quantize(model, [x], scheme)
    found = [node.args for node in result.graph.nodes if str(node.target) == "torchao.dequantize_affine.default"]
    assert sorted((args[1], args[5]) for args in found) == sorted([(block, low), ([1, 64], -128)])
    assert sqnr(model(x), result(x)) > least


def test_groups_may_have_another_size():
    result = quantize(nn.Sequential(nn.Linear(128, 8)), [torch.randn(2, 128)], "int8-dynamic-int4", group_size=64)
    assert [1, 64] in [node.args[1] for node in result.graph.nodes if "dequantize_affine" in node.name]
    with pytest.raises(QuantizationError, match="linear has groups of 16: XNNPACK has groups of multiples of 32"):
        quantize(nn.Sequential(nn.Linear(64, 8)), [torch.randn(2, 64)], "int8-dynamic-int4", group_size=16)


def test_a_quantized_constant_is_returned_as_the_numbers_it_stands_for():
    class Model(nn.Module):
        def forward(self, x):
            nothing_left = torch.ops.aten.constant_pad_nd.default(x + x, [3, -2, -2, 1])
            quantized = torch.ops.quantized_decomposed.quantize_per_tensor.default(
                nothing_left, 0.04, 16, -128, 127, torch.int8
            )
            numbers = torch.ops.quantized_decomposed.dequantize_per_tensor.default(
                quantized, 0.04, 16, -128, 127, torch.int8
            )
            return numbers, x * 2

    x = torch.randn(2, 3, 2, 4)
    lowered = delegatekit.lower(torch.export.export(Model(), (x,)), backends=["xnnpack"])
    for result, expected in zip(delegatekit.load(lowered.buffer)["forward"](x), Model()(x), strict=True):
        torch.testing.assert_close(result, expected)
