"""Quantized programs: the numbers of the module that stands for them, and integers that stay small in the blob."""

from __future__ import annotations

import pytest
import torch

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_openvino.blob.layout import read_layout
from delegatekit_toolkit.testing import float32_tolerance


def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 16, 3, padding=1, groups=16),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 128),
        torch.nn.ReLU(),
        torch.nn.Linear(128, 64),
    ).eval()


def _compare(lowered: testkit.Lowered) -> None:
    """The module's own numbers: it computes in float32 only."""
    bound = float32_tolerance(256)
    for engine in lowered.engines:
        torch.testing.assert_close(lowered.run(engine=engine), lowered.eager(), rtol=bound, atol=bound)


def test_int8_computes_what_the_quantized_module_does() -> None:
    calibration = [(torch.randn(1, 3, 8, 8),) for _ in range(4)]
    quantized = delegatekit.quantize(_net(), calibration, backend="openvino", scheme="int8")
    lowered = testkit.lower(quantized, *calibration[0], backend="openvino")
    _compare(lowered)


@pytest.mark.parametrize(("scheme", "most"), [("int8-weight-only", 1.3), ("int4-weight-only", 0.8)])
def test_weights_of_linear_layers_stay_integers(scheme: str, most: float) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).eval()
    x = torch.randn(3, 256)
    quantized = delegatekit.quantize(net, [(x,)], backend="openvino", scheme=scheme)
    lowered = testkit.lower(quantized, x, backend="openvino")
    _compare(lowered)
    weights = 256 * 128 + 128 * 64
    # In bytes, for each weight: the integer, and its share of scale and bias.
    assert len(read_layout(lowered.delegate.blob).constants) < most * weights


@pytest.mark.parametrize("axis", [0, 1])
def test_scales_along_either_axis_of_a_weight(axis: int) -> None:
    import torch.ao.quantization.fx._decomposed  # registers the operators

    torch.manual_seed(0)
    weight = torch.randint(-127, 128, (16, 16)).to(torch.int8)
    scale, zero = torch.rand(16) * 0.01 + 0.001, torch.zeros(16, dtype=torch.int64)
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel

    def layer(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, dequantize(weight, scale, zero, axis, -127, 127, torch.int8))

    _compare(testkit.lower(layer, torch.randn(3, 16), backend="openvino"))


def test_a_vector_is_a_weight_of_one_channel() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Buffer(torch.tensor([0.5, -2.0]))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(x, self.weight)

    calibration = [(torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),)]
    quantized = delegatekit.quantize(Layer(), calibration, backend="openvino", scheme="int8")
    _compare(testkit.lower(quantized, *calibration[0], backend="openvino"))
