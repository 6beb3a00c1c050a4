"""`quantize(..., correct_bias=True)`: the mean errors of channels are subtracted from the biases."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit.plugins import LoadedBackend
from delegatekit_api import QuantizationError
from delegatekit_api.schemes import (
    PER_CHANNEL,
    PER_TOKEN,
    QuantizationRule,
    QuantizationScheme,
    TensorQuantization,
    per_group,
)

pytest.importorskip("torchao")

INT8 = TensorQuantization("int8")
#: Few bits, so that the errors are large.
COARSE = TensorQuantization("int8", -7, 7, symmetric=True, granularity=PER_CHANNEL, eps=2.0**-20)
INT32 = TensorQuantization("int32", symmetric=True)
TOKENS = TensorQuantization("int8", granularity=PER_TOKEN, dynamic=True)
FOUR = TensorQuantization("int4", symmetric=True, granularity=per_group(8), eps=torch.finfo(torch.float32).eps)
WEIGHTED = ("linear", "conv1d", "conv2d", "conv_transpose2d")
SCHEMES = (
    QuantizationScheme("static", "", rules=(QuantizationRule(WEIGHTED, INT8, COARSE, None, INT8, ("relu",)),)),
    QuantizationScheme("int32-bias", "", rules=(QuantizationRule(WEIGHTED, INT8, COARSE, INT32, INT8, ("relu",)),)),
    QuantizationScheme("dynamic-int4", "", "dynamic", (QuantizationRule(("linear",), TOKENS, FOUR),)),
    QuantizationScheme("own", "the plugin's"),
)


@pytest.fixture(autouse=True)
def _schemes(monkeypatch):
    monkeypatch.setattr(LoadedBackend, "quantization_schemes", lambda self, options=None: SCHEMES)
    torch.manual_seed(0)


def quantize(model, calibration, scheme, **settings):
    return delegatekit.quantize(model, calibration, backend="reference", scheme=scheme, **settings)


def mean_error(model, quantized, data, channels):
    """The largest difference of the channels' means over the data, relative to the largest value."""
    with torch.no_grad():
        expected = torch.stack([model(*inputs).movedim(channels, 0).flatten(1).mean(1) for inputs in data]).mean(0)
        actual = torch.stack([quantized(*inputs).movedim(channels, 0).flatten(1).mean(1) for inputs in data]).mean(0)
    return float((expected - actual).abs().max() / expected.abs().max())


def noise(model, quantized, data):
    with torch.no_grad():
        return sum(float((model(*inputs) - quantized(*inputs)).square().sum()) for inputs in data)


LAYERS = {
    "linear": (lambda: nn.Linear(16, 8), (4, 16), -1),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 20), 1),
    "conv2d in groups": (lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 9, 9), 1),
    "conv2d without a batch": (lambda: nn.Conv2d(4, 8, 3), (4, 9, 9), 0),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(4, 6, 3), (2, 4, 5, 5), 1),
}


@pytest.mark.parametrize("scheme", ["static", "int32-bias"])
@pytest.mark.parametrize("layer", LAYERS)
def test_means_of_channels_are_those_of_float(layer, scheme):
    build, shape, channels = LAYERS[layer]
    model = build().eval()
    data = [(torch.rand(shape),) for _ in range(6)]  # of mean 0.5: rounded weights shift the results
    plain = mean_error(model, quantize(model, data, scheme), data, channels)
    corrected = mean_error(model, quantize(model, data, scheme, correct_bias=True), data, channels)
    assert plain > 0.02
    assert corrected < 0.1 * plain  # the rest is the rounding of the results


@pytest.mark.parametrize("scheme", ["static", "int32-bias", "dynamic-int4"])
def test_layers_behind_corrected_ones_are_corrected_for_what_is_left(scheme):
    model = nn.Sequential(*(part for _ in range(4) for part in (nn.Linear(32, 32), nn.ReLU())), nn.Linear(32, 8)).eval()
    before = copy.deepcopy(model.state_dict())
    data = [(torch.rand(4, 32),) for _ in range(16)]
    plain, corrected = (quantize(model, data, scheme, correct_bias=change) for change in (False, True))
    assert mean_error(model, corrected, data, -1) < 0.2 * mean_error(model, plain, data, -1)
    unseen = [(torch.rand(4, 32),) for _ in range(16)]
    assert noise(model, corrected, unseen) < 0.5 * noise(model, plain, unseen)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} of the float model has changed"


class Shared(nn.Module):
    """Two layers with the same bias."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(8))
        self.first, self.second = (nn.Parameter(torch.randn(8, 8)) for _ in range(2))

    def forward(self, x):
        first = nn.functional.linear(x, self.first, self.bias)
        second = nn.functional.linear(x, self.second, self.bias)
        return torch.cat([first, second], -1)


@pytest.mark.parametrize("scheme", ["static", "int32-bias", "dynamic-int4"])
def test_layers_that_share_a_bias_get_biases_of_their_own(scheme):
    model = Shared().eval()
    data = [(torch.rand(4, 8),) for _ in range(8)]
    plain, corrected = (quantize(model, data, scheme, correct_bias=change) for change in (False, True))
    assert mean_error(model, corrected, data, -1) < 0.2 * mean_error(model, plain, data, -1)
    torch.export.export(corrected, data[0])


@pytest.mark.parametrize("correct", [False, True])
def test_a_bias_that_integers_cannot_hold_stays_float(correct):
    class Small(nn.Module):
        """One layer has tiny inputs and weights: its bias has more steps of their products than 32 bits."""

        def __init__(self):
            super().__init__()
            self.small, self.usual = nn.Linear(16, 8), nn.Linear(16, 8)
            nn.init.normal_(self.small.weight, std=1e-6)

        def forward(self, x):
            return self.small(x * 1e-12), self.usual(x)

    model, data = Small().eval(), [(torch.randn(4, 16),) for _ in range(4)]
    result = quantize(model, data, "int32-bias", correct_bias=correct)
    types = {name: value.dtype for name, value in result.state_dict().items() if name.endswith("bias")}
    assert types == {"small.bias": torch.float32, "usual.bias": torch.int32}
    wanted, got = model(*data[0])[0], result(*data[0])[0]
    assert (got - wanted).abs().max() <= (wanted.max() - wanted.min().clamp(max=0)) / 255  # a step


def test_a_layer_without_bias_stays_as_it_is():
    model = nn.Sequential(nn.Linear(8, 8, bias=False)).eval()
    data = [(torch.rand(4, 8),) for _ in range(3)]
    plain, corrected = (quantize(model, data, "static", correct_bias=change) for change in (False, True))
    assert torch.equal(plain(*data[0]), corrected(*data[0]))


def test_calibration_may_be_an_iterator_and_ratios_see_the_correction():
    model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 8)).eval()
    data = [torch.rand(4, 32) for _ in range(8)]
    plain = quantize(model, iter(data), "static", measure=True).quantization
    corrected = quantize(model, iter(data), "static", measure=True, correct_bias=True).quantization
    assert corrected.samples == 8
    assert corrected.sqnr > plain.sqnr + 3


def test_a_quantizer_of_the_plugin_refuses_the_correction(monkeypatch):
    from torchao.quantization.pt2e.quantizer import Quantizer

    class Nothing(Quantizer):
        def annotate(self, model):
            return model

        def validate(self, model):
            pass

    monkeypatch.setattr(LoadedBackend, "create_quantizer", lambda self, scheme, options: Nothing())
    with pytest.raises(QuantizationError, match="the plugin's own: correct_bias"):
        quantize(nn.Linear(4, 4).eval(), [torch.rand(2, 4)], "own", correct_bias=True)
