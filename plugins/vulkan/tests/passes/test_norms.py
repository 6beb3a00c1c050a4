"""RMS norms that a program writes in parts become one call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_conformance.testkit import compare, lower
from delegatekit_toolkit.testing import float32_tolerance

from ..blobs import operators


class Norm(nn.Module):
    def __init__(self, size: int, *, weighted: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5) if weighted else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y if self.weight is None else self.weight * y


@pytest.mark.needs_device
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(3, 16), (2, 5, 7), (1, 2, 3, 8)], ids=str)
def test_the_parts_are_one_call(shape: tuple[int, ...], weighted: bool) -> None:
    lowered = lower(Norm(shape[-1], weighted=weighted), torch.randn(shape), backend="vulkan")
    assert operators(lowered) == ["et_vk.rms_norm.default"]
    compare(lowered, tolerance=float32_tolerance(shape[-1]))


@pytest.mark.needs_device
def test_sizes_that_change_are_normalized_alike() -> None:
    rows = torch.export.Dim("rows", min=1, max=9)
    x = torch.randn(4, 8)
    lowered = lower(Norm(8, weighted=True), x, backend="vulkan", dynamic_shapes=({0: rows},))
    assert operators(lowered) == ["et_vk.rms_norm.default"]
    compare(lowered, (torch.randn(9, 8),), (torch.randn(2, 8),), tolerance=float32_tolerance(8))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + 1e-6),
        lambda x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6),
        lambda x: x.abs() * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda x: torch.add(x.pow(2), 1e-6).mean(-1, keepdim=True).rsqrt() * x,
        lambda x: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), x.pow(2).mean(-1, keepdim=True)),
    ],
    ids=["another axis", "another power", "of something else", "another order", "a part is read elsewhere"],
)
def test_what_is_no_norm_stays(function) -> None:
    assert "et_vk.rms_norm.default" not in operators(lower(function, torch.rand(4, 8), backend="vulkan"))
