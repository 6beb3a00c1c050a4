"""Schemes: those of each chip, their accuracy, and the weights among the integers of others' programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401  (registers quantize and dequantize)
from torch.nn import functional as F

import delegatekit
from delegatekit_conformance.cases.requantized import FORMS, rewritten
from delegatekit_qnn import plugin
from delegatekit_qnn.options import QnnOptions
from delegatekit_toolkit.accuracy import tolerance
from delegatekit_toolkit.testing import as_module


@pytest.mark.parametrize(("soc", "wide"), [("sm8350", False), ("sm8450", False), ("sm8550", True), ("sm8850", True)])
def test_weights_of_16_bits_are_offered_from_generation_73_on(soc: str, wide: bool) -> None:
    names = [scheme.name for scheme in plugin.quantization_schemes(QnnOptions(soc=soc))]
    assert ("16a16w" in names) is wide
    assert {"8a8w", "8a8w-per-tensor", "8a4w", "16a8w", "16a4w"} <= set(names)


class Net(nn.Module):
    """Layers of all kinds; the mean's numbers, and so the steps of the last layer's sums, are very small."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.up, self.head = nn.ConvTranspose2d(8, 8, 2, 2), nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        y = self.up(y + torch.relu(self.deep(y)))
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


def ratio(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Signal to noise, in dB."""
    return float(10 * torch.log10(wanted.square().sum() / (found - wanted).square().sum()))


def test_weights_of_16_bits_come_nearer_to_float_than_those_of_8(simulator: None) -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 3, 16, 16),) for _ in range(8)]
    module = Net().eval()
    near = {}
    for scheme in ("16a8w", "16a16w"):
        quantized = delegatekit.quantize(module, samples, backend="qnn", scheme=scheme)
        program = delegatekit.lower(quantized, samples[0], backends=["qnn"])
        (method,) = delegatekit.report(program).methods
        assert len(method.delegates) == 1 and not method.fallback
        run = delegatekit.load(program.buffer)["forward"]
        found, fake, real = (
            torch.cat([call(*sample) for sample in samples]).detach() for call in (run, quantized, module)
        )
        assert ratio(found, fake) > 60
        near[scheme] = ratio(found, real)
    assert near["16a16w"] > near["16a8w"] + 3


@pytest.mark.parametrize("spread", [4.0, 0.5])
def test_a_hard_sigmoid_of_16_bits_is_right_in_a_part_of_its_range_too(spread: float, simulator: None) -> None:
    samples = [(torch.randn(1, 4, 8) * spread,) for _ in range(8)]
    quantized = delegatekit.quantize(nn.Hardsigmoid().eval(), samples, backend="qnn", scheme="16a8w")
    program = delegatekit.lower(quantized, samples[0], backends=["qnn"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1
    found = delegatekit.load(program.buffer)["forward"](*samples[0])
    assert ratio(found, nn.Hardsigmoid()(*samples[0])) > 60


def test_a_bias_that_32_bits_of_small_steps_do_not_reach_is_whole(simulator: None) -> None:
    module = nn.Linear(4, 4).eval()
    with torch.no_grad():
        module.weight.mul_(1e-3)
        module.bias.fill_(40.0)
    samples = [(torch.rand(1, 4) * 1e-3,) for _ in range(4)]
    quantized = delegatekit.quantize(module, samples, backend="qnn", scheme="16a8w")
    program = delegatekit.lower(quantized, samples[0], backends=["qnn"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1
    found = delegatekit.load(program.buffer)["forward"](*samples[0])
    inexact = next(item for item in plugin.quantization_schemes(QnnOptions()) if item.name == "16a8w").relative_error
    assert torch.allclose(found, torch.full_like(found, 40.0), rtol=inexact, atol=0)


@pytest.mark.parametrize("bias", [False, True])
def test_a_channel_whose_weights_are_next_to_nothing_keeps_its_zero_and_bias(bias: bool, simulator: None) -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(3, 32),) for _ in range(2)]
    quantized = delegatekit.quantize(nn.Linear(32, 32, bias=bias).eval(), samples, backend="qnn", scheme="16a8w")
    rewritten(quantized, FORMS["a-tiny-channel"])
    program = delegatekit.lower(quantized, samples[0], backends=["qnn"])
    assert (
        len(delegatekit.report(program).methods[0].delegates) == 1
        and not delegatekit.report(program).methods[0].fallback
    )
    found = delegatekit.load(program.buffer)["forward"](*samples[0])
    # Ten steps of 16 bits; before, all of it was lost.
    assert (found - quantized(*samples[0])).abs().max() < 5e-4


def test_factors_that_float16_has_not_are_left_to_the_runtime(simulator: None) -> None:
    x = torch.tensor([0.5, -0.25, 0.125])
    for model in (Factor(1e5), Factor(1e-6)):
        program = delegatekit.lower(model, (x,), backends=["qnn"])
        found = delegatekit.load(program.buffer)["forward"](x)
        assert torch.allclose(found, model(x), rtol=tolerance("float32", "float16", 1), atol=0)


class Factor(nn.Module):
    """A factor, and the bounds of 16 bits, the last of which float16 cannot represent."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu() * self.factor + (4e5 * (x * 2).clamp(0.0, 1.0)).clamp(0.0, 65535.0)


@pytest.mark.parametrize(
    "part",
    [
        lambda x: x[:, -1:],
        lambda x: x[:, -1],
        lambda x: x[:, -3:].clamp(-9.0, 9.0),
        lambda x: x.index_select(1, torch.tensor([15])),
    ],
    ids=["last", "selected", "clamped", "looked up"],
)
def test_weights_of_4_bits_see_the_part_that_they_are_given(part: Any, simulator: None) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(64, 64, bias=False)
    module = as_module(lambda x: layer(part(x * 1.5)))
    module.layer = layer  # type: ignore[assignment]
    samples = [(torch.randn(1, 16, 64),) for _ in range(2)]
    quantized = delegatekit.quantize(module.eval(), samples, backend="qnn", scheme="16a4w")
    program = delegatekit.lower(quantized, samples[0], backends=["qnn"])
    assert len(delegatekit.report(program).methods[0].delegates) == 1
    found, wanted = delegatekit.load(program.buffer)["forward"](*samples[0]), quantized(*samples[0])
    inexact = next(item for item in plugin.quantization_schemes(QnnOptions()) if item.name == "16a4w").relative_error
    assert (found - wanted).abs().max() < inexact * wanted.abs().max()


class Integers(nn.Module):
    """A layer with integer weights of some type, as quantized by others; None: floats."""

    def __init__(self, dtype: torch.dtype | None, zero_point: int) -> None:
        super().__init__()
        self.dtype, self.zero_point = dtype, zero_point
        self.bounds = (0, 255) if dtype is torch.uint8 else (-128, 127)
        numbers = torch.randint(*self.bounds, (4, 8))
        self.weight = nn.Buffer(numbers * 0.01 if dtype is None else numbers.to(dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = torch.ops.quantized_decomposed
        ends: Any = (128, 0, 255, torch.uint8)
        weight = self.weight
        if self.dtype is not None:
            weight = q.dequantize_per_tensor(weight, 0.01, self.zero_point, *self.bounds, self.dtype)
        y = F.linear(q.dequantize_per_tensor(q.quantize_per_tensor(x, 0.02, *ends), 0.02, *ends), weight)
        return q.dequantize_per_tensor(q.quantize_per_tensor(y, 0.05, *ends), 0.05, *ends)


@pytest.mark.parametrize(
    ("dtype", "zero_point"), [(torch.int8, 0), (torch.int8, 5), (torch.uint8, 128), (torch.int16, 0), (None, 0)]
)
def test_weights_of_others_are_computed_right_or_not_at_all(
    dtype: torch.dtype | None, zero_point: int, simulator: None
) -> None:
    torch.manual_seed(0)
    x, module = torch.randn(2, 8), Integers(dtype, zero_point).eval()
    program = delegatekit.lower(module, (x,), backends=["qnn"])
    # One step, for a number half-way between two.
    assert (delegatekit.load(program.buffer)["forward"](x) - module(x)).abs().max() <= 0.0501


def test_numbers_of_half_precision_are_quantized_outside(simulator: None) -> None:
    class Rounded(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            form: tuple[Any, ...] = (1 / 32, 0, -128, 127, torch.int8)
            ops: Any = torch.ops.quantized_decomposed
            return torch.relu(ops.dequantize_per_tensor(ops.quantize_per_tensor(x.half(), *form), *form))

    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    program = delegatekit.lower(Rounded(), (x,), backends=["qnn"])
    torch.testing.assert_close(delegatekit.load(program.buffer)["forward"](x), Rounded()(x), rtol=0, atol=1e-6)
