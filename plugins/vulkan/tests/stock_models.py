"""Small models that both lowerings support, for comparing their blobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import nn

from delegatekit_conformance.models import ModelCase, build_model


class TinyConvolutions(nn.Module):
    """Convolutions of all kinds with batch norms and clamps, a pool and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.depth = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Hardswish(), nn.Conv2d(8, 12, 1), nn.ReLU())
        self.pool, self.head = nn.MaxPool2d(2), nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of 5 classes."""
        return torch.softmax(self.head(self.pool(self.depth(self.stem(x))).mean((-2, -1))), -1)


def _tiny(name: str) -> ModelCase:
    torch.manual_seed(0)
    return ModelCase(name, TinyConvolutions().eval(), (torch.randn(1, 3, 16, 16),))


def _eager_attention(name: str) -> ModelCase:
    """Attention in its parts: stock's delegate does not support all parts of a fused one."""
    case = build_model(name, small=True)
    case.module.model.set_attn_implementation("eager")  # type: ignore[union-attr, operator]
    return case


def _small(name: str) -> ModelCase:
    return build_model(name, small=True)


#: Name -> how the model is built, and true if it is lowered to float16.
MODELS: Final[dict[str, tuple[Callable[[str], ModelCase], bool]]] = {
    "mobilenet-v2": (_small, False),
    "resnet-50": (_small, False),
    "vit-base": (_eager_attention, False),
    "bert-base": (_eager_attention, False),
    # Stock's lowering fails for Llama's attention in parts.
    "llama-100m": (_small, False),
    "tiny-fp16": (_tiny, True),
}
