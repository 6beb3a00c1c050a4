"""Networks: one delegate each, on numbers and on integers, with PyTorch's results."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance import testkit
from delegatekit_conformance.models import FURTHER_MODELS, build_model
from delegatekit_vgf.blob.operators import operators


class Attention(nn.Module):
    """Multi-head attention, with a sum and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.norm = nn.MultiheadAttention(16, 4, batch_first=True), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.heads(x, x, x, need_weights=False)[0])


def _network(name: str) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    if name == "mlp":
        layers = nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4), nn.Softmax(-1)
        return nn.Sequential(*layers).eval(), torch.randn(2, 8)
    if name == "attention":
        return Attention().eval(), torch.randn(1, 6, 16)
    layers = (
        *(nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU6()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Hardswish(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, groups=2)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
    )
    return nn.Sequential(*layers).eval(), torch.randn(1, 3, 20, 20)


@pytest.mark.parametrize("name", ["mlp", "cnn", "attention"])
def test_a_network_is_one_delegate_that_is_right(name: str) -> None:
    module, x = _network(name)
    testkit.compare(testkit.lower(module, x, backend="vgf"), tolerance=1e-5)


@pytest.mark.parametrize("scheme", ["int8", "int16"])
@pytest.mark.parametrize("name", ["mlp", "cnn", "attention"])
def test_a_quantized_network_is_one_delegate_that_is_right(name: str, scheme: str) -> None:
    """Numbers between two steps may become the other one: results are as near as two steps."""
    module, x = _network(name)
    quantized = delegatekit.quantize(module, [(x,)] * 2, backend="vgf", scheme=scheme)
    lowered = testkit.lower(quantized, x, backend="vgf")
    step = next(node.args[1] for node in reversed(quantized.graph.nodes) if "dequantize_per_tensor" in str(node.target))
    (got,), (want,) = lowered.run(), lowered.eager()
    assert float((got - want).abs().max()) <= 2.01 * step


def test_float_and_quantized_layers_share_a_delegate() -> None:
    """What no scheme quantizes computes on numbers, behind the integers of the layers before it."""
    torch.manual_seed(0)
    x = torch.randn(2, 8)
    layers = delegatekit.quantize(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), [(x,)] * 2, backend="vgf")
    lowered = testkit.lower(lambda value: torch.cumsum(layers(value), 1) * value, x, backend="vgf")
    names = [item.name for item in operators(memoryview(lowered.delegate.blob), ())]
    assert {"RESCALE", "CONCAT", "MUL"} <= set(names)
    torch.testing.assert_close(lowered.run(), lowered.eager(), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet-v2", "vit-base", "resnet-50"])
def test_a_known_network_is_one_delegate_that_is_right(name: str) -> None:
    case = build_model(name, small=True)
    testkit.compare(testkit.lower(case.module, *case.inputs, backend="vgf"), tolerance=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [*FURTHER_MODELS, "mobilevit", "u-net"])
def test_a_foreign_network_is_one_delegate_that_is_right(name: str) -> None:
    """Networks that this backend was not written for."""
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    testkit.compare(testkit.lower(case.module, *case.inputs, backend="vgf"), tolerance=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["lstm tagger", "bert-base"])
def test_only_the_tokens_of_a_text_stay_outside(name: str) -> None:
    """Tokens are int64, which TOSA has not."""
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    lowered = testkit.lower(case.module, *case.inputs, backend="vgf", whole=False)
    assert len(lowered.delegates) == 1
    testkit.compare(lowered, tolerance=1e-5)
