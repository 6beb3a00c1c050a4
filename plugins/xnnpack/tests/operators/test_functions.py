"""Functions composed of several nodes: as precise as PyTorch's, also where they are small."""

from __future__ import annotations

import math

import pytest
import torch
from processors import needs_avx512
from torch.nn import functional as F

#: XNNPACK's exponential is exact to a rounding of its argument.
EXPONENTIAL = 4e-6


def _numbers(largest: float) -> torch.Tensor:
    small = torch.exp(-12.0 * torch.rand(2000)) * torch.randn(2000).sign()
    return torch.cat([small, (2.0 * torch.rand(2000) - 1.0) * largest, torch.tensor([0.0, 1.0, -1.0, 0.5, -0.5])])


@pytest.mark.parametrize(
    ("function", "largest"),
    [
        (torch.expm1, 80.0),
        (torch.sinh, 80.0),
        (torch.cosh, 80.0),
        (F.softplus, 80.0),
        (lambda x: F.softplus(x, beta=2.5), 12.0),
        (F.logsigmoid, 80.0),
        (F.mish, 80.0),
        (F.celu, 80.0),
        (lambda x: F.celu(x, 0.3), 20.0),
    ],
    ids=["expm1", "sinh", "cosh", "softplus", "softplus_beta", "logsigmoid", "mish", "celu", "celu_alpha"],
)
def test_each_number_is_as_exact_as_the_exponential(function, largest, lower_whole):
    lowered = lower_whole(function, _numbers(largest))
    torch.testing.assert_close(lowered.run()[0].double(), lowered.eager()[0], rtol=EXPONENTIAL, atol=0.0)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 0.5, 1.0, 1e6])
def test_log1p_is_exact_for_small_numbers_too(scale, lower_whole):
    x = torch.cat([scale * torch.rand(2000), -min(scale, 1.0) * torch.rand(2000)])
    lowered = lower_whole(torch.log1p, x)
    torch.testing.assert_close(lowered.run()[0].double(), lowered.eager()[0], rtol=4e-7, atol=0.0)


LOG1P = pytest.param(torch.log1p, marks=needs_avx512)


@pytest.mark.parametrize("function", [torch.expm1, LOG1P, torch.sinh, torch.cosh, F.softplus, F.logsigmoid])
def test_infinities_are_those_of_eager(function, lower_whole):
    x = torch.tensor([math.inf, -math.inf, -1.0])
    assert torch.equal(lower_whole(function, x).run()[0].isinf(), function(x).isinf())
