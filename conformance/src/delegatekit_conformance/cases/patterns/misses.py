"""Near misses: programs that look like ones that compilers fuse or fold, and are different."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..subjects import Built
from .register import pattern


@pattern("axes-in-turns")
def axes_in_turns() -> Built:
    """Eight axes along which operands are repeated in turns; a weight that is a vector; a root by its exponent."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            rows = x.flatten(0, 5)
            return (
                torch.where(z, x, y),
                x - y,
                nn.functional.linear(rows.squeeze(-1), y.flatten()[:2]),
                rows.abs().add(0.1) ** -0.5,
            )

    odd, even = (2, 1, 2, 1, 2, 1, 2, 1), (1, 2, 1, 2, 1, 2, 1, 2)
    return Model(), [(torch.randn(odd), torch.randn(even), torch.rand(odd[:4] + even[4:]) > 0.5)]


@pattern("five-axes-in-turns")
def five_axes_in_turns() -> Built:
    """Five axes, as many as some processors have, along which operands are broadcast in turns, chosen and repeated."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
            return x + y, torch.where(y[0] > 0.0, x, 0.5), z.abs().repeat(2, 1, 3, 1, 2)

    return Model(), [(torch.randn(2, 1, 3, 1, 2), torch.randn(1, 3, 1, 2, 1), torch.randn(2, 2, 2, 2, 2))]


@pattern("two-pads")
def two_pads() -> Built:
    """Two pads in a row, different on each side, before operators with pads of their own."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> Any:
            once = nn.functional.pad(x, (1, 0, 3, 2))
            twice = nn.functional.pad(nn.functional.pad(x, (1, 2, 0, 3)), (2, 0, 1, 0))
            return (
                self.conv(once),
                self.conv(twice),
                nn.functional.max_pool2d(nn.functional.pad(x, (0, 1, 2, 0), value=-9.0), 3, 2, 1),
            )

    return Model(), [(torch.randn(1, 3, 6, 7),)]


@pattern("uneven-averages")
def uneven_averages() -> Built:
    """Windows of averages that stick out on one axis, on the other, and over a pad."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            settings = {"ceil_mode": True, "count_include_pad": False}
            wide, high = x[..., :7, :6], x[..., :6, :7]
            return (
                nn.functional.avg_pool2d(wide, 3, 2, **settings),
                nn.functional.avg_pool2d(high, 3, 2, **settings),
                nn.functional.avg_pool2d(wide, 3, 2, (0, 1), **settings),
                nn.functional.avg_pool2d(nn.functional.pad(high, (1, 0, 0, 2)), 3, 2, 1, **settings),
                nn.functional.max_pool2d(wide, 3, 2, ceil_mode=True),
                nn.functional.max_pool2d(high, 3, 2, (1, 0), ceil_mode=True),
            )

    return Model(), [(torch.randn(1, 3, 8, 8),)]


@pattern("clamps-apart")
def clamps_apart() -> Built:
    """Clamps of one value whose bounds have nothing in common, and ones that are read before they are clamped again."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.conv(x)
            z = y.mean((2, 3))
            once = self.linear(z).relu()
            return (
                *(y.relu().clamp(-2, -1), y.clamp(-1, 0.5).clamp(0.75, 2), y.clamp(0.75, 2).clamp(-1, 0.5)),
                *(once, self.linear(once), once.clamp(max=0.25) + once),
            )

    return Model(), [(torch.randn(1, 3, 7, 7),)]


@pattern("norms-of-others")
def norms_of_others() -> Built:
    """The statistics of one tensor scale another, or are those of other axes, or of a sum instead of a mean."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.rand(12) + 0.5)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            factor = ((x * x).mean(-1, keepdim=True) + 1e-3).rsqrt()
            mixed = ((x * y).mean(-1, keepdim=True).abs() + 0.5).rsqrt()
            others = ((x * x).mean(-2, keepdim=True) + 1e-3).rsqrt()
            total = ((x * x).sum(-1, keepdim=True) + 1e-3).rsqrt()
            away = y.mean(-1, keepdim=True)
            return (
                *(factor * y * self.weight, x * mixed * self.weight, x * others * self.weight, total * x),
                *((x - away) * ((x - away).pow(2).mean(-1, keepdim=True) + 1e-3).rsqrt(), factor * x - x, y * factor),
            )

    return Model(), [(torch.randn(3, 4, 12), torch.randn(3, 4, 12))]


@pattern("activations-of-others")
def activations_of_others() -> Built:
    """Products that would be SiLU, hard swish or GELU with the same operand, or with the usual numbers."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return (
                *(x * y.sigmoid(), y.sigmoid() * x, x * (x + 3).clamp(0, 5) / 6, x * (y + 3).clamp(0, 6) / 6),
                *(
                    x * (x + 2).clamp(0, 6) / 6,
                    (x + 3).clamp(0, 6) / 5,
                    0.5 * x * (1 + torch.erf(y * 0.7071067811865476)),
                ),
                *(x.softmax(-1) * y, x - x.exp().sum(-2, keepdim=True).log(), x.exp() / x.exp().sum(-2, keepdim=True)),
            )

    return Model(), [(torch.randn(3, 10), torch.randn(3, 10))]


@pattern("half-arithmetic")
def half_arithmetic() -> Built:
    """Sums and products of float16 with one clamp as their only reader, read by more of float16."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            return (x + y).relu() * y, (x * y).clamp(-0.5, 0.5) - x, (x - y).clamp(min=0.25).neg() + x

    return Model(), [(torch.randn(3, 10).half(), torch.randn(3, 10).half())]


@pattern("equal-sizes")
def equal_sizes() -> Built:
    """As many samples as places, heads, channels, rows and columns: sizes do not identify axes."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queries, self.keys, self.image = nn.Linear(16, 16), nn.Linear(16, 16), nn.Conv2d(4, 4, 3, padding=1)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            q, k = (layer(x).unflatten(-1, (4, 4)).transpose(1, 2) for layer in (self.queries, self.keys))
            z = self.image(y)
            moved = z.permute(2, 0, 3, 1) + y, z.transpose(1, 3) @ y, z.flatten(2).mT.unflatten(1, (4, 4)) - y
            return q @ k.mT, q.relu(), (k + 1).softmax(1), moved, z.sum(1) + z.amax(2), torch.cat([z, y], 2)

    return Model(), [(torch.randn(4, 4, 16), torch.randn(4, 4, 4, 4))]


@pattern("half-precision-images")
def half_precision_images() -> Built:
    """Convolutions of all kinds, norms, pools and resizing of a model that is float16 as a whole."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.norm = nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8)
            self.deep, self.groups = nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 8, 3, groups=2, bias=False)
            self.wide, self.point = nn.Conv2d(8, 6, 3, padding=2, dilation=2), nn.Conv2d(8, 5, 1)
            self.back, self.line = nn.ConvTranspose2d(5, 4, 3, 2, 1, 1), nn.Conv1d(8, 6, 3)
            self.head = nn.Linear(5, 3)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.norm(self.stem(x)).relu()
            z = self.point(nn.functional.silu(self.deep(y)) + y)
            large = nn.functional.interpolate(z, scale_factor=2, mode="bilinear")
            pooled = nn.functional.max_pool2d(y, 2), nn.functional.avg_pool2d(y, 3, 2, 1)
            return (
                self.groups(y),
                self.wide(y),
                self.back(z),
                self.line(y.flatten(2)),
                self.head(z.mean((2, 3))),
                large,
                pooled,
            )

    return Model().half(), [(torch.randn(2, 3, 9, 10).half(),)]


@pattern("half-precision-rows")
def half_precision_rows() -> Built:
    """Linear layers, norms, attention, reductions and lookups of a model that is float16 as a whole."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.norm, self.root = nn.Embedding(10, 12), nn.LayerNorm(12), nn.RMSNorm(12)
            self.parts, self.out = nn.Linear(12, 36), nn.Linear(12, 5, bias=False)

        def forward(self, index: torch.Tensor, x: torch.Tensor) -> Any:
            y = self.norm(self.words(index) + x)
            parts = self.parts(y).reshape(2, 5, 3, 3, 4).permute(2, 0, 3, 1, 4)
            found = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            z = self.root(found.transpose(1, 2).reshape(2, 5, 12))
            ordered = z.amax(-1), z.cumsum(1), z.var(1), torch.cat([z[:, 1:], z[:, :1]], 1)
            return nn.functional.gelu(self.out(z)), z.softmax(-1) @ y.mT, ordered, z.sum((1, 2)), z.exp()

    return Model().half(), [(torch.randint(0, 10, (2, 5)), torch.randn(2, 5, 12).half())]


@pattern("moves-that-undo-others")
def moves_that_undo_others() -> Built:
    """Transposes, reshapes, slices and joins in a row: those that cancel out, and those that almost do."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            rows = x.reshape(2, 3, 4, 5).permute(0, 2, 1, 3)
            halves = x[:, :10], x[:, 10:]
            return (
                *(rows.permute(0, 2, 1, 3).reshape(6, 20) + 1, rows.permute(1, 0, 2, 3).reshape(6, 20) + 1),
                *(torch.cat(halves, 1) + 1, torch.cat(halves[::-1], 1) + 1, torch.cat((halves[0], halves[0]), 1) + 1),
                *(x.t().flip(0).t() + 1, x.roll(3, 1)[:, 3:] + 1, x.unsqueeze(1).expand(6, 2, 20).sum(1)),
            )

    return Model(), [(torch.randn(6, 20),)]


@pattern("stacks-in-another-order")
def stacks_in_another_order() -> Built:
    """Products of matrices whose stacks come permuted, in one way or in two."""

    class Model(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
            left, right = x.permute(2, 0, 1, 3, 4), y.permute(2, 0, 1, 3, 4)
            turned = x.permute(1, 0, 2, 3, 4), y.permute(1, 0, 2, 4, 3).mT
            return left @ right, turned[0] @ turned[1], left[:, :, 0] @ right[:, :, 0], x @ y

    return Model(), [(torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3, 4, 6, 5))]
