"""Blobs of stock ExecuTorch's partitioner run here, and agree with eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import delegatekit
from delegatekit_conformance.models import build_model

from .stock import stock_buffer

pytestmark = pytest.mark.needs_device


def run(buffer: bytes, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
    found = delegatekit.inspect(buffer).methods[0].delegates
    assert found and {item.id for item in found} == {"VulkanBackend"}
    result = delegatekit.load(buffer)["forward"](*inputs)
    return [result] if isinstance(result, torch.Tensor) else list(result)


def agree(model: nn.Module, inputs: tuple[Any, ...], bound: float = 1e-4, **options: Any) -> None:
    """Errors are measured relative to the largest value."""
    with torch.no_grad():
        wanted = model.eval()(*inputs)
    wanted = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    for got, want in zip(run(stock_buffer(model, inputs, **options), inputs), wanted, strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        error = (got.double() - want.double()).abs().max() / want.double().abs().max()
        assert error <= bound, error


class Pieces(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = (x + y) * 0.5 - x / (y.abs() + 1)
        return torch.cat([z[:, :2], z.flip(1)[:, 1:]], 1).permute(0, 2, 1), z.exp().mean(-1, keepdim=True)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(), nn.Conv2d(8, 12, 1), nn.ReLU())
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.pool(self.depth(self.stem(x))).mean((-2, -1))), -1)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(ids))


def test_arithmetic_and_moves() -> None:
    agree(Pieces(), (torch.randn(2, 3, 4), torch.randn(2, 3, 4)))


@pytest.mark.slow
def test_a_small_convolutional_network() -> None:
    agree(Images(), (torch.randn(1, 3, 16, 16),))


@pytest.mark.slow
def test_a_small_transformer() -> None:
    agree(Tokens(), (torch.randint(20, (1, 6)),))


@pytest.mark.slow
def test_half_precision() -> None:
    agree(Images(), (torch.randn(1, 3, 16, 16),), bound=5e-3, force_fp16=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenet-v2", "resnet-50", "vit-base", "bert-base", "llama-100m"])
def test_models(name: str) -> None:
    pytest.importorskip("transformers")
    case = build_model(name, small=True)
    agree(case.module, case.inputs, bound=1e-3)
