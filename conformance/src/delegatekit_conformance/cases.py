"""The cases: small modules with inputs, built from seeds so that every process sees the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

#: A module in eval mode and its example inputs.
Built: TypeAlias = tuple[nn.Module, tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Case:
    """A module to lower with its example inputs; the tolerance follows from the two numbers.

    `reduction_length` is how many products the longest sum adds up; `depth` counts the operators one behind the other
    that round.
    """

    name: str
    build: Callable[[], Built]
    reduction_length: int = 1
    depth: int = 1

    def make(self) -> Built:
        """The module and its inputs: the same numbers on every call and in every process."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module, inputs = self.build()
        return module.eval(), inputs


class Function(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        """Call the function."""
        return self.function(*inputs)


def _module(make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> Callable[[], Built]:
    """Builds a module with normally distributed inputs of these shapes."""
    return lambda: (make(), tuple(torch.randn(shape) for shape in shapes))


def _function(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Built]:
    """Builds a function with normally distributed inputs of these shapes."""
    return _module(lambda: Function(function), *shapes)


def _division() -> Built:
    """A quotient whose divisor keeps away from zero, where its condition would be bad."""
    return Function(torch.div), (torch.randn(2, 3, 4), torch.rand(3, 1) + 0.5)


def _special_values() -> Built:
    """A sum whose inputs hold NaN and both infinities beside ordinary numbers."""
    special = torch.tensor([float("nan"), float("inf"), float("-inf"), 0.0, -1.5])
    return Function(torch.add), (special.repeat(2, 1), torch.randn(2, 5))


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


CASES: tuple[Case, ...] = (
    Case("add", _function(torch.add, (2, 3, 4), (3, 1))),
    Case("add, NaN and infinities", _special_values),
    Case("mul", _function(torch.mul, (2, 3, 4), (3, 1))),
    Case("div", _division),
    Case("clamp", _function(lambda x: x.clamp(-0.5, 1.0), (3, 5))),
    Case("sigmoid", _function(torch.sigmoid, (3, 5))),
    Case("exp", _function(torch.exp, (3, 5))),
    Case("gelu", _function(F.gelu, (3, 5)), depth=2),
    Case("softmax", _function(lambda x: x.softmax(-1), (2, 3, 7)), 7, depth=2),
    Case("mean", _function(lambda x: x.mean(-1), (2, 3, 7)), 7),
    Case("cat", _function(lambda x, y: torch.cat([x, y], 1), (2, 3), (2, 5))),
    Case("permute and reshape", _function(lambda x: (x * 2).permute(0, 2, 1).reshape(2, -1), (2, 3, 4))),
    Case("matmul", _function(torch.matmul, (2, 5, 8), (2, 8, 4)), 8),
    Case("linear", _module(lambda: nn.Linear(16, 8), (4, 16)), 16),
    Case("conv2d", _module(lambda: nn.Conv2d(3, 8, 3, padding=1), (1, 3, 9, 9)), 27),
    Case("conv2d, depthwise", _module(lambda: nn.Conv2d(8, 8, 3, groups=8), (1, 8, 9, 9)), 9),
    Case("conv_transpose2d", _module(lambda: nn.ConvTranspose2d(4, 3, 3, 2), (1, 4, 5, 5)), 36),
    Case("max_pool2d", _module(lambda: nn.MaxPool2d(2), (1, 4, 8, 8))),
    Case("avg_pool2d", _module(lambda: nn.AvgPool2d(2), (1, 4, 8, 8)), 4),
    Case("layer_norm", _module(lambda: nn.LayerNorm(16), (3, 16)), 16, depth=4),
    Case("upsample, bilinear", _module(lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 3, 5, 5)), 4, depth=2),
    # The runtime has no kernel for it: a backend takes it, or the program must be refused with a reason.
    Case("inverse", _function(lambda x: torch.linalg.inv_ex(x).inverse, (4, 4))),
    Case("model: small CNN", _module(SmallCnn, (1, 3, 32, 32)), 64, depth=9),
    Case("model: small transformer", _module(SmallTransformer, (1, 12, 32)), 64, depth=16),
)
