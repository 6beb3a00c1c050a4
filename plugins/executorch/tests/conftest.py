"""Shared by the tests of ExecuTorch's backends: a small network."""

from __future__ import annotations

import pytest
import torch


class Network(torch.nn.Module):
    """A convolution with its norm, a pool, a mean and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Class probabilities of images."""
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.convolution(x)) * 2 + 1.5), 2, 2)
        return torch.softmax(self.linear(x.mean((2, 3))), -1)


@pytest.fixture
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return Network().eval()


@pytest.fixture
def image() -> torch.Tensor:
    return torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
