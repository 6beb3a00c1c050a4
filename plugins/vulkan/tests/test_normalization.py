"""Normalization of rows and groups, compared with eager PyTorch in double precision, on a device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_conformance.testkit import compare, lower

from .blobs import operators

pytestmark = pytest.mark.needs_device

#: Moments are float32 sums; and values are rounded to float16 at each store.
TOLERANCE, HALF = 2e-6, 4e-3


def with_numbers(model):
    """Weights and biases that are not 1 and 0."""
    for parameter in model.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    return model


CASES = [
    (nn.LayerNorm(12), (3, 4, 12)),
    (nn.LayerNorm(7), (5, 7)),
    (nn.LayerNorm((4, 5)), (3, 4, 5)),
    (nn.LayerNorm(7, elementwise_affine=False), (2, 7)),
    (nn.LayerNorm(5), (5,)),
    (nn.LayerNorm(3001), (2, 3001)),
    (nn.RMSNorm(12), (3, 4, 12)),
    (nn.RMSNorm(5, eps=1e-6), (5,)),
    (nn.RMSNorm((3, 5), elementwise_affine=False), (2, 3, 5)),
    (nn.GroupNorm(2, 6), (2, 6, 3, 5)),
    (nn.GroupNorm(3, 6), (2, 6, 4)),
    (nn.GroupNorm(3, 6, affine=False), (2, 6)),
    (nn.GroupNorm(2, 4), (1, 4, 64, 64)),
]


@pytest.mark.parametrize(("model", "shape"), CASES, ids=lambda case: str(case).replace(" ", ""))
def test_norms_are_one_operator_and_agree_with_eager(model, shape):
    x = 3 + 2 * torch.randn(shape)
    lowered = lower(with_numbers(model), x, backend="vulkan")
    compare(lowered, tolerance=TOLERANCE)
    assert sum("norm" in name for name in operators(lowered)) == 1
    compare(lower(model, x, backend="vulkan", options={"fp16": True}), tolerance=HALF)


def test_a_large_mean_costs_no_more_than_its_own_rounding():
    # 1000 has a last digit of 6e-5, and so has the mean that is subtracted.
    lowered = lower(with_numbers(nn.LayerNorm(777)), 1000 + torch.randn(5, 777), backend="vulkan")
    compare(lowered, tolerance=6e-5)


def test_rows_with_infinity_and_nan_are_those_of_eager():
    x = torch.randn(4, 6)
    x[1, 2], x[2, 0], x[3, 5] = float("inf"), float("nan"), -float("inf")
    for model in (nn.LayerNorm(6), nn.RMSNorm(6)):
        lowered = lower(model, x, backend="vulkan")
        torch.testing.assert_close(lowered.run()[0], lowered.eager()[0], equal_nan=True)


def test_norms_of_sizes_that_change_agree_with_eager():
    rows = torch.export.Dim("rows", max=20)
    model = nn.Sequential(nn.LayerNorm(6), nn.RMSNorm(6))
    lowered = lower(with_numbers(model), torch.randn(2, 4, 6), backend="vulkan", dynamic_shapes=({1: rows},))
    compare(lowered, *[[torch.randn(2, size, 6)] for size in (1, 4, 20, 3)], tolerance=TOLERANCE)
