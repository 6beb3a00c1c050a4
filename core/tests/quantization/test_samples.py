"""Dynamic scales for the samples and the pixels that convolutions read."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit_api import ProgramView
from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_SAMPLE,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
)
from delegatekit_toolkit.quantized import dynamic_quantization_of

primitives = pytest.importorskip("torchao.quantization.quant_primitives")

TOKENS = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)
SAMPLES = TensorQuantization("int8", granularity=PER_SAMPLE, dynamic=True)
WEIGHT = TensorQuantization("int8", symmetric=True, granularity=PER_CHANNEL)
LAYERS = ("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "linear")
SCHEMES = (
    QuantizationScheme("samples", "", "dynamic", (QuantizationRule(LAYERS, SAMPLES, WEIGHT),)),
    QuantizationScheme("tokens", "", "dynamic", (QuantizationRule(LAYERS, TOKENS, WEIGHT),)),
)


@pytest.fixture(autouse=True)
def _schemes(monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)


def quantize(model, *inputs, scheme="samples", **settings):
    return delegatekit.quantize(model.eval(), [inputs], backend="reference", scheme=scheme, **settings)


def rounded(x, block):
    """torchao's result for a tensor with one scale for each block."""
    bounds = torch.int8, -128, 127
    found = primitives.choose_qparams_affine(
        x, primitives.MappingType.ASYMMETRIC, block, *bounds, eps=2.0**-23, zero_point_dtype=torch.int8
    )
    return primitives.dequantize_affine(primitives.quantize_affine(x, block, *found, *bounds), block, *found, *bounds)


def float_twin(layer, quantized):
    """The layer with the numbers that its integers represent."""
    node = next(node for node in quantized.graph.nodes if "dequantize" in node.name and node.args[0].op == "get_attr")
    integers, scale = (getattr(quantized, node.args[index].target) for index in (0, 2))
    twin = copy.deepcopy(layer)
    sizes = [1] * integers.dim()
    sizes[node.args[1].index(1)] = -1
    with torch.no_grad():
        twin.weight.copy_(integers.float() * scale.reshape(sizes))
    return twin


@pytest.mark.parametrize(
    "layer, shape, sample, token",
    [
        (nn.Conv2d(4, 8, 3), (3, 4, 5, 6), (1, 4, 5, 6), (1, 4, 1, 1)),
        (nn.Conv1d(4, 8, 3), (3, 4, 5), (1, 4, 5), (1, 4, 1)),
        (nn.ConvTranspose2d(4, 8, 3), (3, 4, 5, 6), (1, 4, 5, 6), (1, 4, 1, 1)),
        (nn.ConvTranspose1d(4, 8, 3), (3, 4, 5), (1, 4, 5), (1, 4, 1)),
        (nn.Linear(6, 8), (3, 4, 5, 6), (1, 4, 5, 6), (1, 1, 1, 6)),
    ],
    ids=["conv2d", "conv1d", "conv_transpose2d", "conv_transpose1d", "linear"],
)
@pytest.mark.parametrize("scheme", ["samples", "tokens"])
def test_the_numbers_are_those_of_torchao(layer, shape, sample, token, scheme):
    torch.manual_seed(0)
    inputs = torch.randn(shape) * 10.0 ** torch.arange(3).reshape(3, *[1] * (len(shape) - 1))
    module = quantize(nn.Sequential(layer), inputs, scheme=scheme)
    wanted = float_twin(layer, module)(rounded(inputs, sample if scheme == "samples" else token))
    torch.testing.assert_close(module(inputs), wanted, rtol=1e-5, atol=1e-5)


def test_one_value_may_be_read_sample_by_sample_pixel_by_pixel_and_row_by_row():
    class Readers(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.again, self.linear = nn.Conv2d(4, 8, 3), nn.Conv2d(4, 8, 3), nn.Linear(6, 8)

        def forward(self, x):
            return self.conv(x), self.again(x), self.linear(x)

    inputs = torch.randn(2, 4, 5, 6)
    module = quantize(Readers(), inputs, scheme="tokens")
    chosen = [node.args[2] for node in module.graph.nodes if "choose_qparams" in str(node.target)]
    assert sorted(chosen) == [[1, 1, 1, 6], [1, 4, 1, 1]]
    assert len([1 for node in quantize(Readers(), inputs).graph.nodes if "choose_qparams" in str(node.target)]) == 1


@pytest.mark.parametrize("scheme, axes", [("samples", (1, 2, 3)), ("tokens", (1,))])
@pytest.mark.parametrize("changing", [{}, {0: "batch"}, {0: "batch", 2: "height", 3: "width"}])
def test_plugins_read_what_shares_a_scale_also_where_sizes_change(changing, scheme, axes):
    shapes = ({axis: torch.export.Dim(name, min=4, max=40) for axis, name in changing.items()},)
    example, other = torch.randn(5, 4, 9, 8), torch.randn(4, 4, 11, 12) if 2 in changing else torch.randn(4, 4, 9, 8)
    module = quantize(nn.Conv2d(4, 8, 3), example, scheme=scheme, dynamic_shapes=shapes)
    program = torch.export.export(module, (example,), dynamic_shapes=shapes, strict=False)
    view = ProgramView.of(program)
    chains = [chain for call in view.calls() if (chain := dynamic_quantization_of(call)) is not None]
    assert [chain.axes for chain in chains] == [axes]
    if changing:
        torch.testing.assert_close(program.module()(other), module(other))


def test_batch_norms_are_folded_before_weights_are_rounded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    nn.init.uniform_(model[1].running_var, 0.1, 2.0)
    nn.init.normal_(model[1].running_mean)
    inputs = torch.randn(2, 4, 6, 6)
    module = quantize(model, inputs)
    assert not any("batch_norm" in str(node.target) for node in module.graph.nodes)
    assert (module(inputs) - model(inputs)).norm() < 0.02 * model(inputs).norm()
    measured = quantize(model, inputs, measure=True, correct_bias=True)
    assert measured.quantization.sqnr > 35
