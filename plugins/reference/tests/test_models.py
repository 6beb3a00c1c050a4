"""Models, small and with random weights: each is one delegate, and every result equals eager, bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim


class Pick(nn.Module):
    """A module with a single selected result."""

    def __init__(self, model: nn.Module, **settings):
        super().__init__()
        self.model, self.settings = model, settings

    def forward(self, *inputs):
        result = self.model(*inputs, **self.settings)
        return result[0] if isinstance(result, tuple) else result


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.SiLU())
        self.depthwise = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.Hardswish())
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1))
        self.head = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(128, 5))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.uniform_(-1, 1)
                module.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y = self.depthwise(x)
        return self.head(x + y * self.squeeze(y).sigmoid())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.GELU())
        self.middle = nn.Sequential(
            nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.LeakyReLU()
        )
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.out = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        y = self.middle(x)
        up = torch.cat([x, self.up(y)], 1) * nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
        return self.out(up)


class Decoder(nn.Module):
    """A layer as in Llama: RMS norm, rotary positions, causal attention with grouped heads, gated linear units."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.query, self.key, self.value = nn.Linear(16, 16, bias=False), nn.Linear(16, 8), nn.Linear(16, 8)
        self.norm, self.gate, self.up, self.down = (
            nn.RMSNorm(16),
            nn.Linear(16, 24),
            nn.Linear(16, 24),
            nn.Linear(24, 16),
        )

    def rotated(self, x: torch.Tensor) -> torch.Tensor:
        angles = torch.arange(x.shape[-2])[:, None] * 10000 ** (-torch.arange(0, 4, 2, dtype=x.dtype) / 4)
        even, odd = x[..., ::2], x[..., 1::2]
        parts = [even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()]
        return torch.stack(parts, -1).flatten(-2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        y = self.norm(x)
        query, key, value = (p(y).unflatten(-1, (-1, 4)).transpose(1, 2) for p in (self.query, self.key, self.value))
        attention = nn.functional.scaled_dot_product_attention(
            self.rotated(query), self.rotated(key), value, is_causal=True, enable_gqa=True
        )
        x = x + attention.transpose(1, 2).flatten(2)
        return x + self.down(nn.functional.silu(self.gate(self.norm(x))) * self.up(x)) @ self.embedding.weight.T[:, :16]


IMAGE, STATES = torch.rand(2, 3, 16, 16), torch.randn(2, 5, 16)
MODELS = {
    "residual": (Residual, (IMAGE,)),
    "U-Net": (UNet, (torch.rand(1, 1, 8, 8),)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (STATES,)),
    "encoder, norm first": (
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=True, activation="gelu"),
        (STATES,),
    ),
    "decoder": (Decoder, (torch.randint(0, 50, (2, 7)),)),
    "LSTM": (lambda: Pick(nn.LSTM(16, 8, 2, batch_first=True)), (STATES,)),
    "GRU, bidirectional": (lambda: Pick(nn.GRU(16, 8, bidirectional=True)), (STATES,)),
    "RNN": (lambda: Pick(nn.RNN(16, 8)), (STATES,)),
    "attention": (lambda: Pick(nn.MultiheadAttention(16, 4, batch_first=True), need_weights=False), (STATES,) * 3),
    "3-d": (lambda: nn.Sequential(nn.Conv3d(1, 2, 3), nn.ELU(), nn.MaxPool3d(2), nn.BatchNorm3d(2)), None),
    "1-d": (lambda: nn.Sequential(nn.Conv1d(5, 4, 3, dilation=2), nn.PReLU(4), nn.AvgPool1d(3)), (STATES,)),
}


@pytest.fixture(autouse=True)
def _slow_path():
    """In eager, encoders use a fused kernel that torch.export does not."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(enabled)


@pytest.mark.sweep
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_models_equal_eager(equals_eager, name, dtype):
    torch.manual_seed(0)
    build, inputs = MODELS[name]
    inputs = (torch.rand(1, 1, 6, 6, 6),) if inputs is None else inputs
    inputs = tuple(tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in inputs)
    with torch.no_grad():
        model = build().to(dtype)
    equals_eager(model, inputs)


@pytest.mark.parametrize("name", ["residual", "encoder", "decoder"])
def test_models_equal_eager_at_other_sizes(equals_eager, name):
    build, (example,) = MODELS[name]
    with torch.no_grad():
        model = build()
    calls = [(torch.cat([example] * 3)[:n],) for n in (3, 6, 2)]
    equals_eager(model, *calls, dynamic_shapes=({0: Dim("n", max=6)},))
