"""Linear layers, their activations and norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..subjects import Built
from .register import pattern


@pattern("linear-gelu")
def linear_gelu() -> Built:
    """The exact GELU."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)), [(torch.randn(2, 5, 8),)]


@pattern("linear-over-pixels")
def linear_over_pixels() -> Built:
    """Linear layers over the channels of images, as in ConvNeXt and Swin: four axes, with sums of 32.

    Rows and columns of the first result fill no block of a kernel, and are more than one.
    """
    return nn.Sequential(nn.Linear(32, 67), nn.ReLU(), nn.Linear(67, 32)), [(torch.randn(1, 3, 4, 32),)]


@pattern("linear-gelu-tanh")
def linear_gelu_tanh() -> Built:
    """GELU by tanh, which differs from the exact one by up to 5e-4."""
    return nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh")), [(2 * torch.randn(2, 5, 8),)]


@pattern("gelu-written-out")
def gelu_written_out() -> Built:
    """GELU as checkpoints of before 2020 write it."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            exact = x * 0.5 * (1.0 + torch.erf(x / 1.4142135623730951))
            return exact, 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))

    return Model(), [(2 * torch.randn(3, 7),)]


@pattern("linear-relu-chain")
def linear_relu_chain() -> Built:
    """Four linear layers of different widths: kernels go over several blocks of rows and columns, and rests of both."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 134), nn.Linear(134, 4)
            self.third, self.last = nn.Linear(4, 135), nn.Linear(135, 1)

        def forward(self, x: torch.Tensor) -> Any:
            wide = self.first(x)
            wider = self.third(self.second(wide.relu()).relu())
            return wide, wider, self.last(wider.tanh())

    return Model(), [(torch.randn(9, 8),), (torch.randn(9, 8),)]


@pattern("addmm-chain")
def addmm_chain() -> Built:
    """Linear layers spelled as products with a matrix that is stored the other way round, as in GPT-2."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.shift = nn.Parameter(torch.randn(32, 64) / 6), nn.Parameter(torch.randn(64))
            self.second, self.third = nn.Parameter(torch.randn(64, 32) / 8), nn.Parameter(torch.randn(8, 32) / 6)

        def forward(self, x: torch.Tensor) -> Any:
            y = nn.functional.gelu(torch.addmm(self.shift, x.view(-1, 32), self.first))
            return torch.mm(y @ self.second, self.third.t()) + self.shift[:8]

    return Model(), [(torch.randn(2, 5, 32),)]


@pattern("swiglu")
def swiglu() -> Built:
    """The gated feed-forward layer of Llama."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up = nn.Linear(8, 20, bias=False), nn.Linear(8, 20, bias=False)
            self.down = nn.Linear(20, 8, bias=False)

        def forward(self, x: torch.Tensor) -> Any:
            return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))

    return Model(), [(torch.randn(1, 6, 8),)]


@pattern("geglu-chunk")
def geglu_chunk() -> Built:
    """One linear layer whose result is cut into gate and value."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.both, self.down = nn.Linear(8, 24), nn.Linear(12, 8)

        def forward(self, x: torch.Tensor) -> Any:
            value, gate = self.both(x).chunk(2, -1)
            return self.down(value * nn.functional.gelu(gate))

    return Model(), [(torch.randn(2, 3, 8),)]


@pattern("layer-norm")
def layer_norm() -> Built:
    """With weights, without, and over two dimensions."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(8)
            nn.init.normal_(self.norm.weight)
            nn.init.normal_(self.norm.bias)

        def forward(self, x: torch.Tensor) -> Any:
            return self.norm(x), nn.functional.layer_norm(x, (8,)), nn.functional.layer_norm(x, (5, 8))

    return Model(), [(torch.randn(2, 5, 8) + 1,)]


@pattern("layer-norm-written-out")
def layer_norm_written_out() -> Built:
    """Mean and variance by hand."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.randn(8)), nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> Any:
            centred = x - x.mean(-1, keepdim=True)
            variance = (centred * centred).mean(-1, keepdim=True)
            return centred / torch.sqrt(variance + 1e-5) * self.weight + self.bias

    return Model(), [(torch.randn(2, 5, 8),)]


@pattern("rms-norm")
def rms_norm() -> Built:
    """torch's own, Llama's written out, and one without weights whose operands are in the other order."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.RMSNorm(8, eps=1e-6)
            nn.init.normal_(self.norm.weight)

        def forward(self, x: torch.Tensor) -> Any:
            factor = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.norm(x), self.norm.weight * (x * factor), factor * x

    return Model(), [(torch.randn(2, 5, 8),)]


@pattern("group-norms")
def group_norms() -> Built:
    """Groups of one and of several channels, each with a weight and a bias of its own, over images and rows."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.GroupNorm(groups, 6) for groups in (1, 2, 3, 6))
            for parameter in self.parameters():
                nn.init.normal_(parameter)

        def forward(self, image: torch.Tensor, row: torch.Tensor) -> Any:
            return *(norm(image) for norm in self.norms), self.norms[1](row)

    return Model(), [(torch.randn(2, 6, 4, 5), torch.randn(1, 6, 17))]


@pattern("group-norm-silu")
def group_norm_silu() -> Built:
    """Group norm, SiLU and a convolution, as in diffusion models."""
    model = nn.Sequential(nn.GroupNorm(2, 6), nn.SiLU(), nn.Conv2d(6, 4, 3, padding=1))
    return model, [(torch.randn(2, 6, 5, 5),)]


@pattern("instance-norm")
def instance_norm() -> Built:
    """Statistics of each channel of each image."""
    return nn.Sequential(nn.InstanceNorm2d(4, affine=True), nn.ReLU()), [(torch.randn(2, 4, 6, 6),)]


@pattern("l2-normalize")
def l2_normalize() -> Built:
    """Embeddings of length 1, and their cosines."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            x, y = nn.functional.normalize(x, dim=-1), nn.functional.normalize(y, dim=-1)
            return x @ y.T

    return Model(), [(torch.randn(4, 8), torch.randn(3, 8))]
