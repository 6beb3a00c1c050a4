"""The cases: small modules with inputs, built from seeds so that every process sees the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn


@dataclass(frozen=True)
class Case:
    """A module to lower and its example inputs.

    `depth` counts the operators one behind the other that round, `terms` the products that the longest sum adds up:
    the tolerance follows from them.
    """

    name: str
    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    depth: int = 1
    terms: int = 1
    positive: bool = False

    def make(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        """The module in eval mode and its inputs; the same on every call."""
        torch.manual_seed(0)
        module = self.build().eval()
        generator = torch.Generator().manual_seed(1)
        inputs = tuple(torch.randn(shape, generator=generator) for shape in self.shapes)
        return module, tuple(tensor.abs() + 0.1 for tensor in inputs) if self.positive else inputs


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Call the function."""
        return self.function(*inputs)


def _function(function: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: Function(function)


class SmallCnn(nn.Module):
    """Convolutions with batch norm, a depthwise one, a residual, pools and a classifier: (1, 3, 32, 32) -> (1, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU6(), nn.MaxPool2d(2))
        self.depthwise = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Hardswish())
        self.pointwise = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of an image."""
        x = self.stem(x)
        x = x + self.pointwise(self.depthwise(x))
        logits: torch.Tensor = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


class SmallTransformer(nn.Module):
    """One encoder block with attention, layer norm and a GELU feed-forward part: (1, 12, 32) -> (1, 12, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.feed = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Hidden states behind the block."""
        batch, length, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = x + self.feed(self.norms[1](x))
        return result


_PAIR = ((2, 3, 4), (3, 1))

CASES: tuple[Case, ...] = (
    Case("add", _function(torch.add), _PAIR),
    Case("mul", _function(torch.mul), _PAIR),
    Case("div", _function(torch.div), _PAIR, positive=True),
    Case("clamp", _function(lambda x: x.clamp(-0.5, 1.0)), ((3, 5),)),
    Case("sigmoid", _function(torch.sigmoid), ((3, 5),)),
    Case("exp", _function(torch.exp), ((3, 5),)),
    Case("gelu", _function(F.gelu), ((3, 5),), depth=2),
    Case("softmax", _function(lambda x: x.softmax(-1)), ((2, 3, 7),), depth=2, terms=7),
    Case("mean", _function(lambda x: x.mean(-1)), ((2, 3, 7),), terms=7),
    Case("cat", _function(lambda x, y: torch.cat([x, y], 1)), ((2, 3), (2, 5))),
    Case("permute and reshape", _function(lambda x: (x * 2).permute(0, 2, 1).reshape(2, -1)), ((2, 3, 4),)),
    Case("matmul", _function(torch.matmul), ((2, 5, 8), (2, 8, 4)), terms=8),
    Case("linear", lambda: nn.Linear(16, 8), ((4, 16),), terms=16),
    Case("conv2d", lambda: nn.Conv2d(3, 8, 3, padding=1), ((1, 3, 9, 9),), terms=27),
    Case("conv2d, depthwise", lambda: nn.Conv2d(8, 8, 3, groups=8), ((1, 8, 9, 9),), terms=9),
    Case("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 3, 3, 2), ((1, 4, 5, 5),), terms=36),
    Case("max_pool2d", lambda: nn.MaxPool2d(2), ((1, 4, 8, 8),)),
    Case("avg_pool2d", lambda: nn.AvgPool2d(2), ((1, 4, 8, 8),), terms=4),
    Case("layer_norm", lambda: nn.LayerNorm(16), ((3, 16),), depth=4, terms=16),
    Case("upsample, bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), ((1, 3, 5, 5),), depth=2, terms=4),
    Case("model: small CNN", SmallCnn, ((1, 3, 32, 32),), depth=9, terms=64),
    Case("model: small transformer", SmallTransformer, ((1, 12, 32),), depth=16, terms=64),
)
