"""Operators of all other families on the simulator against PyTorch in double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_conformance.testkit import refusals
from delegatekit_qnn.options import QnnOptions
from delegatekit_qnn.support import QnnPartitioner
from delegatekit_toolkit.testing import as_module


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * sum(shape)))


class Each(nn.Module):
    """The outputs of several modules for one input."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> Any:
        return [part(x) for part in self.parts]


def affine(module: nn.Module) -> nn.Module:
    """A normalization with weights that change something."""
    generator = torch.Generator().manual_seed(1)
    for parameter in module.parameters():
        parameter.data = 1 + 0.5 * torch.randn(parameter.shape, generator=generator)
    return module


class Single(nn.Module):
    """Convolutions whose settings are one number each."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", drawn(6, 4, 3, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        valid = torch.ops.aten.conv2d.padding(x, self.weight, None, [2], "valid", [1])
        return valid, torch.ops.aten.convolution.default(x, self.weight, None, [1], [1], [2], False, [0], 1)


IMAGES = drawn(2, 4, 6, 8)
FIVE = drawn(2, 3, 2, 4, 6)
ROWS = drawn(4, 6)
ORDER = torch.randperm(24, generator=torch.Generator().manual_seed(3)).reshape(4, 6)


class Multiples(nn.Module):
    """A sum with a constant row, multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.row, self.bias = nn.Linear(6, 6), nn.Buffer(drawn(6)), nn.Buffer(drawn(4))

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> Sequence[torch.Tensor]:
        first, second = (x + self.row) * 2, (self.layer(x) + self.row) * 0.5
        third = F.linear(x.expand(2, 3, 6), weight, self.bias) * 2
        return first, second, third, (first + self.row) * -1.5, (x.mean(0) + self.row) * 2


class Heads(nn.Module):
    """The scores of attention, and what a relu leaves of the queries."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads, self.queries, self.keys = heads, nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        q, k = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.queries, self.keys))
        return q @ k.mT, q.relu(), k + 1


CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "reductions": (
        lambda x, i: (
            *(x.sum(), x.mean((2, 3)), x.amax(1), x.amin(0, keepdim=True), x[0, 0].prod(1), x.var(1), x.std()),
            *(x.cumsum(1), (x > 0).any(1), (x > 0).all(), (x > 0).sum(1), x.argmax(1), x.argmin(), *x.max(1)),
            *(i.sum(1), i.amax(0), i.min(), i.cumsum(0), i.argmin(1), *i.max(1)),
            *torch.var_mean(x, dim=(0, 2)),
            *(torch.linalg.vector_norm(1000 * x, dim=1), torch.linalg.vector_norm(x, 1, 0)),
        ),
        (IMAGES, ORDER),
    ),
    "reductions of five axes": (
        lambda x: (
            *torch.std_mean(x, 2),
            x.sum(1),
            x.amax((0, 4)),
            x.amin(),
            x.softmax(1),
            x.log_softmax(-1),
            x.cumsum(2),
            x.argmax(1),
        ),
        (FIVE,),
    ),
    "order": (
        lambda x: (*x.topk(3), *x.topk(2, 0, False), *x.sort(1), *x.sort(0, descending=True), x.argsort(0)),
        (ROWS,),
    ),
    "records and ranks": (
        lambda x, i: (
            *(*x.cummax(1), *x.cummin(-1), *(x > 0).cummax(2), *i.cummax(0), *i.cummin(1)),
            *(*x.kthvalue(2, 1), *x.kthvalue(5, -1, keepdim=True), *x.median(1), x.median(), *x[:, 1:].median(1)),
        ),
        (IMAGES, ORDER),
    ),
    "ties and records": (
        lambda x: (x.round().cummax(1), x.round().cummin(1), x.round().int().cummax(0)),
        (ROWS,),
    ),
    "distances": (
        lambda x, y: (
            *(torch.cdist(x, y), torch.cdist(x[0], y, p=1.0), torch.cdist(100 * x, 100 * y), torch.cdist(x, x)),
            torch.cdist(x[0], y[0], p=float("inf")),
        ),
        (drawn(2, 3, 4, 6), drawn(2, 1, 5, 6)),
    ),
    "sums of products": (
        lambda x, y, z: (
            torch.addbmm(z, x, y),
            torch.addbmm(z[0], x, y, beta=0.5, alpha=2),
            torch.addmm(z, x[0], y[0], beta=0.5, alpha=-2),
            torch.baddbmm(z, x, y, beta=2),
        ),
        (drawn(3, 4, 6), drawn(3, 6, 5), drawn(4, 5)),
    ),
    "softmax": (lambda x: (x.softmax(1), x.softmax(-1), x.log_softmax(1)), (IMAGES,)),
    # Of 64 n + 1 elements the library's own logarithm of a softmax is wrong.
    "softmax of one element more than whole vectors": (
        lambda x: (x.log_softmax(1), x.t().log_softmax(0), x.softmax(1), x[:, :65].log_softmax(1)),
        (drawn(3, 129),),
    ),
    # Beyond e^-88 the library's own exponentials and powers start anew.
    "what vanishes far below": (
        lambda x: (
            *(x.exp(), x.exp2(), x.expm1(), 2.0**x, torch.pow(torch.full_like(x, 1.5), x), (x - 0.75).abs() ** -2.5),
            *(F.softplus(x), F.selu(x), F.celu(x, 2.0), F.mish(x), F.elu(x, 2.0), F.logsigmoid(x[1:7])),
            *(x.atan(), (-x).atan(), x.log_softmax(0)),
        ),
        (torch.tensor([0.5, 1.0, -1.0, -12.0, -50.0, -88.0, -100.0, -1000.0, -60000.0]),),
    ),
    # Its softplus of them is not quite 0.
    "mish far below": (F.mish, (torch.tensor([0.5, -1.0, -12.0, -50.0, -1000.0, -60000.0]).repeat(2, 3),)),
    # The library mixes up a batch, places and heads of one number.
    "as many heads as places and samples": (Heads(4), (drawn(4, 4, 8),)),
    "heads of two samples": (Heads(2), (drawn(2, 2, 8),)),
    # Of angles beyond a turn and of a softmax of large numbers the library's own functions know little.
    "angles of many turns": (lambda x: (x.sin(), x.cos(), (x / 2).sin()), (torch.arange(-40.0, 600.0, 6.5),)),
    # Its power of 0 is always 0.
    "powers of zero": (
        lambda x, y: (torch.pow(0.0, x.abs()), torch.pow(y, x.abs()), y**0, (y - 2) ** 0.0),
        (torch.tensor([0.0, -0.0, 1.0, 2.5, 0.0, 2.0]), torch.tensor([0.0, 0.0, 0.0, 0.0, 3.0, 3.0])),
    ),
    "softmax of large numbers": (lambda x: (x.softmax(-1), x.softmax(0)), (500 + drawn(3, 7).round(),)),
    "sigmoid of five axes": (lambda x: x.sigmoid(), (drawn(4, 4, 4, 4, 4),)),
    "whether any are true of five axes": (
        lambda x: (x.any(-5), x.any((0, 1)), x[0].any(2, keepdim=True), x[0].int().any(0), x.sum().int().any()),
        ((drawn(2, 3, 4, 1, 2) > 1) * drawn(2, 3, 4, 1, 2),),
    ),
    "views": (
        lambda x: (
            *(x.reshape(8, 48) + 1, x.transpose(1, 2) + 1, x.unsqueeze(1) + 1, x[:, 1] + 1, x[:, :, ::2] + 1),
            *(torch.cat([x, x], 1) + 1, F.pad(x, (-1, 2, 0, -1), value=2.0) + 1, x.repeat(1, 2, 1, 1) + 1),
            *(
                x[:, :1].expand(2, 5, 6, 8) + 1,
                x.flip((0, 2)) + 1,
                x.sum().flip(-1) + 1,
                x.roll(2, 1) + 1,
                x.roll(5) + 1,
            ),
            *(torch.stack([x, x], 1) + 1, F.channel_shuffle(x, 2) + 1, *(part + 1 for part in x.split([1, 3], 1))),
        ),
        (IMAGES,),
    ),
    "products of columns that became many": (
        lambda x, y: (
            *(x.expand(3, 5) * 1.5, x.expand(3, 5) * y.expand(3, 5), 1.5 - x.expand(3, 5), x.repeat(1, 4) * 2),
            *(x.reshape(3, 1, 1).expand(3, 1, 7) * 2, y[:1, 0].expand(6) * 2, x.repeat_interleave(4, 1) * 2),
        ),
        (drawn(3, 1), drawn(3, 1)),
    ),
    "multiples of sums with a row": (Multiples(), (drawn(3, 6), drawn(4, 6))),
    "views of integers and booleans": (
        lambda x, i: (
            *(i.t() + 1, i[:, ::2] + 1, torch.cat([i, i], 1) + 1, i.repeat(2, 1) + 1, F.pad(i, (1, 2), value=3) + 1),
            *((x > 0)[:, 1:3], torch.cat([x > 0, x > 1], 1), F.pad(x > 0, (1, 2)), (x > 0).flip(1)),
            *((x > 0)[:, :1].expand(4, 5), i.flip(0) + 1),
        ),
        (ROWS, ORDER),
    ),
    "views of five axes": (
        lambda x: (
            x.permute(4, 2, 0, 1, 3) + 1,
            torch.cat([x, x], 1) + 1,
            x.repeat(1, 2, 1, 1, 1) + 1,
            x[:, 1] + 1,
            *(x.repeat(2, 1, 3, 1, 2) + 1, x[:, :1, :1].expand(2, 3, 5, 4, 6) + 1),
        ),
        (FIVE,),
    ),
    # Such an input the library does not reshape at once.
    "an input of five axes as one of four": (
        lambda x: (x.reshape(1, 3, 2, 1) * 2, x.reshape(1, 3, 2, 1).permute(0, 2, 3, 1) * 3),
        (drawn(1, 3, 1, 2, 1),),
    ),
    "lookups along axes of five": (
        lambda x: (x.roll((1, 2), (0, 3)) * 2, x[:, :, torch.tensor([1, 0, 1])] * 2, x.roll(1, -1) * 2),
        (drawn(3, 1, 2, 4, 4),),
    ),
    "windows and diagonals": (
        lambda x: (x.diagonal(1) + 1, x.diagonal(-2, 2, 0) + 1, x.unfold(1, 3, 2) + 1, x[0].tril() + 1),
        (drawn(2, 6, 8),),
    ),
    "padding after": (
        lambda x: (
            F.pad(x, (0, 1, 0, 1)) * 2,
            F.pad(x, (0, 2, 0, 0, 0, 1)) * 2,
            F.pad(x, (0, 1, 0, 1, 0, 1), value=3) * 2,
        ),
        (IMAGES,),
    ),
    "padding with what is there": (
        lambda x: (F.pad(x, (1, 2, 2, 1), "reflect") + 1, F.pad(x, (1, 2, 0, 1), "replicate") + 1),
        (IMAGES,),
    ),
    "lookups": (
        lambda x, i, j: (
            *(x[i] + 1, x[:, i] + 1, x[i, j] + 1, x[:, i, j] + 1, x[i, :, j] + 1, x[:, :, i, j] + 1),
            *(x.index_select(1, j[0]) + 1, (x > 0)[:, i]),
        ),
        (IMAGES, torch.tensor([0, -1, 1]), torch.tensor([[3], [2]])),
    ),
    "embedding": (nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 4)), (torch.tensor([[1, 5, 19]]),)),
    "constants": (
        lambda x: (x + torch.arange(6), x * torch.full((6,), 2.0), x.new_ones(6) - x, torch.fill(x, 2.5) + x),
        (ROWS,),
    ),
    "linear": (nn.Sequential(nn.Linear(8, 3), nn.Linear(3, 5, bias=False)), (IMAGES,)),
    "products": (
        lambda x, y, z: (
            *(x @ x.transpose(-1, -2), x @ y, z @ z.t(), torch.addmm(z[0, :4], z, z.t(), beta=1), z @ z[0]),
            F.linear(z, z),
        ),
        (IMAGES, drawn(8, 3), ROWS),
    ),
    # Over five axes the library's own products crash or are refused.
    "products of many axes and of vectors": (
        lambda x, y, z: (
            *(x @ y, x @ x.transpose(-1, -2), x[0, 0] @ y, y @ x[0, :1, 0]),
            *(z @ z, z @ y, x @ z, z[:1] @ z[:1]),
        ),
        (FIVE, drawn(1, 1, 2, 6, 4), drawn(6)),
    ),
    "attention": (
        lambda q: (F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, is_causal=True)),
        (IMAGES,),
    ),
    "norms": (
        Each(*map(affine, (nn.GroupNorm(2, 4), nn.LayerNorm(8), nn.LayerNorm([6, 8]), nn.RMSNorm(8)))),
        (IMAGES,),
    ),
    "norms by channels": (
        Each(*map(affine, (nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4), nn.GroupNorm(4, 4)))).eval(),
        (IMAGES,),
    ),
    "norms of other ranks": (Each(nn.LayerNorm(6), nn.RMSNorm(6), nn.GroupNorm(3, 3)), (FIVE,)),
    "convolutions": (
        Each(
            nn.Conv2d(4, 6, 3, 2, 1),
            nn.Conv2d(4, 8, 3, groups=4),
            nn.Conv2d(4, 8, 3, groups=2, dilation=2),
            nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
        ),
        (IMAGES,),
    ),
    "one number for all axes": (
        Single(),
        (IMAGES,),
    ),
    "convolutions over one axis": (
        Each(nn.Conv1d(4, 8, 3, padding=1, stride=2, groups=2), nn.ConvTranspose1d(4, 6, 4, 2, 1)),
        (drawn(2, 4, 9),),
    ),
    "convolutions over three axes": (
        Each(
            nn.Conv3d(4, 6, 3, 2, 1),
            nn.Conv3d(4, 8, (1, 3, 2), groups=2, dilation=(1, 2, 1)),
            nn.Conv3d(4, 4, 2, groups=4, bias=False),
            nn.ConvTranspose3d(4, 6, 3, 2, 1, 1),
        ),
        (drawn(2, 4, 3, 5, 6),),
    ),
    "pads of what a function cannot give": (
        lambda x: (
            F.pad(x.exp(), (0, 2), value=-1.5),
            F.pad(x.clamp(0.5, 3), (0, 1, 2, 0)),
            F.pad(x.relu(), (0, 0, 1, 2), value=7.0),
            F.pad(F.hardswish(x), (0, 3, 0, 1), value=-2.0),
        ),
        (drawn(4, 4, 5),),
    ),
    "large steps to one place": (nn.Conv2d(4, 6, 2, (16385, 1)), (IMAGES,)),
    "large integers": (
        lambda i: (
            *(i.sum(1), i.sum(), i.cumsum(1), i.cumsum(0), i.amax(1), *i.max(0), *i.min(1), i.argmax(1)),
            *(i == i.flip(0), i < i.flip(1), i.clamp(max=2**24 + 1), i * 3 - 2**24, i.roll(1, 0) + 1, (i > 0).sum(0)),
        ),
        (2**24 + 1 + torch.tensor([[1, 5, -(2**25), 0, 9], [2, 7, -(2**25), 3, 1]]),),
    ),
    "running sums of many": (lambda x: (x.cumsum(0), x.reshape(3, 1000).cumsum(1)), (torch.ones(3000),)),
    "zeros of five axes": (lambda x: (x * 0 + 1, x * torch.zeros(1, 1, 2, 1, 1)), (FIVE,)),
    "pools": (
        lambda x: (
            *(F.max_pool2d(x, 2), F.max_pool2d(x - 9, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True)),
            *(F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)),
            *(F.avg_pool2d(x, 2, 3, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, divisor_override=2)),
            *(F.adaptive_avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_max_pool2d(x, 2)),
            F.avg_pool2d(x[0], 3, 2),
        ),
        (drawn(2, 3, 10, 8),),
    ),
    "every second window of two at borders": (
        lambda x: (
            *(F.max_pool2d(x, 2, 2, 1), F.max_pool2d(x, (3, 2), 2, (0, 1)), F.max_pool3d(x[None], 2, 2, 1)),
            *(F.avg_pool2d(x, 2, 2, 1), F.avg_pool2d(x, 2, 2, (0, 1)), F.avg_pool3d(x[None], 2, 2, 1)),
            F.avg_pool2d(x, 2, 2, (1, 0), count_include_pad=False),
        ),
        (drawn(2, 3, 5, 7) - 9,),
    ),
    "averages of one padded window": (
        lambda x: (
            *(F.avg_pool2d(x[..., :4, :5], (4, 5), 3, (1, 0), False, counted) for counted in (True, False)),
            *(F.avg_pool2d(x[..., :6, :6], 4, 5, 1), F.avg_pool2d(x[..., :3, :3], 2, 5, 1) + 1),
            F.avg_pool2d(x[..., :3, :3], 3, 3, 1, divisor_override=2),
            *(F.avg_pool1d(x[0, ..., :4], 4, 3, 1), F.avg_pool3d(x[None, :, :3, :4, :3], 3, 3, 1)),
        ),
        (drawn(2, 3, 10, 8) + 1,),
    ),
    "pools over three axes": (
        lambda x: (
            *(F.max_pool3d(x, 2), F.max_pool3d(x - 9, 3, 2, 1), F.max_pool3d(x, (2, 2, 1), 2), F.max_pool3d(x[0], 2)),
            *(F.avg_pool3d(x, 2), F.avg_pool3d(x, 3, 2, 1), F.avg_pool3d(x, 3, 2, 1, count_include_pad=False)),
            *(F.avg_pool3d(x, 3, 2, 1, divisor_override=2), F.adaptive_avg_pool3d(x, 2)),
        ),
        (drawn(2, 3, 4, 6, 8),),
    ),
    "averages of axes of one element": (
        lambda x: (F.adaptive_avg_pool2d(x[0], (2, 3)), F.adaptive_avg_pool3d(x, (3, 1, 1))),
        (drawn(3, 1, 1, 2, 4),),
    ),
    "windows of one row at large steps": (
        lambda x: (F.max_pool2d(x, (2, 1), 2), F.max_pool2d(x, (1, 2), 2), F.max_pool2d(x, 1, 2)),
        (IMAGES,),
    ),
    "pools over one axis": (
        lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 1, 1), F.adaptive_avg_pool1d(x, 3)),
        (drawn(2, 3, 10),),
    ),
    "resizing": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(9, 15), mode="nearest"),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(9, 15), mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=2, mode="bicubic"),
            F.interpolate(x, size=(7, 9), mode="bicubic", align_corners=True),
            F.pixel_shuffle(x, 2),
            F.pixel_unshuffle(x, 2),
        ),
        (drawn(2, 4, 4, 6),),
    ),
    "samples at computed places": (
        lambda x, grid: tuple(
            F.grid_sample(x, grid, mode, beyond, corners)
            for mode in ("bilinear", "nearest")
            for beyond in ("zeros", "border", "reflection")
            for corners in (False, True)
        ),
        (drawn(2, 3, 5, 6), 0.7 * drawn(2, 4, 3, 2)),
    ),
}
#: What says little that others do not.
SLOW = {
    "norms of other ranks",
    "views of five axes",
    "reductions of five axes",
    "samples at computed places",
    "constants",
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES])
def test_results_are_those_of_double_precision(name: str, agree: Callable[..., Any]) -> None:
    model, inputs = CASES[name]
    agree(as_module(model).eval(), *inputs)


def test_a_threshold_is_compared_where_the_numbers_are(agree: Callable[..., Any]) -> None:
    steps = torch.arange(-72, 72).view(3, 2, 3, 2, 4) / 8
    agree(nn.Hardshrink(1.0), steps)


def test_angles_beyond_a_quarter_turn_are_as_exact_as_those_within(agree: Callable[..., Any]) -> None:
    # The library's own functions are off by 0.0025 there. Angle and function are rounded to float16: 2^-11 each.
    agree(lambda x: (x.sin(), x.cos()), torch.arange(-12.5, 12.5, 0.25), tolerance=2.0**-10)


def test_squares_of_large_numbers_stay_within_half_precision(agree: Callable[..., Any]) -> None:
    agree(lambda x: (x.std(1), x.var((0, 2)) / 100), 100 * drawn(2, 8, 8))
    agree(nn.RMSNorm(8), 3000 * drawn(2, 8))
    # The squares of these are below the smallest normal number of float16.
    agree(lambda x: x.std((1, 2)), drawn(2, 8, 8) / 4096)


def test_what_the_processor_computes_otherwise_is_refused_in_words() -> None:
    partitioner = QnnPartitioner(QnnOptions(validate=False))
    whole, places = ORDER.clone(), ORDER % 4
    assert refusals(partitioner, lambda i: i.sort(0)[0], whole) == ["self is int64: float32 or bool is taken"]
    assert refusals(partitioner, lambda i, j: i.scatter_add(0, j, i), whole, places) == [
        "int64 is added: float32 is taken"
    ]
    long = drawn(2, 1 << 15)
    assert refusals(partitioner, lambda x: (x.argmax(1), *x.max(1)), long) == []
    assert refusals(partitioner, lambda x: x.argmin(), long) == ["the place among 65536 elements: 32768 are the most"]
    assert refusals(partitioner, lambda x: x.min(0)[1], drawn((1 << 15) + 1, 2)) == [
        "the place among 32769 elements: 32768 are the most"
    ]
    many = drawn(5000, 2, 2)
    assert refusals(partitioner, torch.bmm, many, many) == ["5000 products of matrices: 4096 are taken"]
    assert refusals(partitioner, nn.Linear(2, 2), many) == []
    long = drawn(1, 1, 3073)
    assert refusals(partitioner, nn.Conv1d(1, 1, 3072), long) == []
    assert refusals(partitioner, nn.Conv1d(1, 1, 3073), long) == ["a window of 3073 elements: 3072 are taken"]
    assert refusals(partitioner, nn.AvgPool2d(5, 4, ceil_mode=True), drawn(1, 3, 8, 8)) == [
        "windows reach 1 beyond the padding"
    ]
    (reason,) = refusals(partitioner, nn.AvgPool3d(2, padding=(1, 0, 0)), drawn(1, 3, 2, 2, 2))
    assert reason == "padding (1, 0, 0), of the first axis without another's"
    assert refusals(partitioner, nn.AdaptiveAvgPool2d((8193, 2)), drawn(1, 3, 4)) == [
        "8193 windows of several sizes: 8192 are taken"
    ]
    assert refusals(partitioner, nn.AdaptiveAvgPool2d((8192, 2)), drawn(1, 3, 4)) == []
    (reason,) = refusals(partitioner, nn.ConvTranspose3d(4, 4, 2, groups=2), drawn(1, 4, 2, 2, 2))
    assert "with 2 groups" in reason


def test_windows_where_the_library_reads_or_writes_nothing_are_refused_in_words() -> None:
    partitioner = QnnPartitioner(QnnOptions(validate=False))

    def reasons(layer: nn.Module, *shape: int) -> list[str]:
        return refusals(partitioner, layer.eval(), drawn(*shape))

    alone = "padding [3, 3]: windows lie in it alone"
    assert reasons(nn.Conv2d(4, 6, 3, padding=3), 1, 4, 6, 6) == [alone]
    assert reasons(nn.Conv2d(4, 6, 3, padding=3, dilation=2), 1, 4, 6, 6) == []
    added = "windows of aten.{}.default lie in the padding alone"
    padded = nn.Sequential(nn.ZeroPad2d((1, 2, 1, 1)), nn.ZeroPad2d((0, 1, 0, 0)), nn.Conv2d(4, 6, 3))
    assert reasons(padded, 1, 4, 6, 6) == [added.format("convolution")]
    assert reasons(nn.Sequential(nn.ZeroPad2d(3), nn.AvgPool2d(3)), 1, 4, 6, 6) == [added.format("avg_pool2d")]
    assert reasons(nn.Sequential(nn.ZeroPad2d(2), nn.Conv2d(4, 6, 3), nn.ZeroPad2d(4)), 1, 4, 6, 6) == []
    (reason,) = reasons(nn.ConvTranspose3d(2, 2, 2, padding=(1, 0, 0)), 1, 2, 3, 3, 3)
    assert reason.endswith("with padding [1, 0, 0]: the processor takes one number")
    for kernel, stride, padding, extra in ((2, 2, 0, 1), (3, 3, 1, 2), (2, 3, 0, 2)):
        (reason,) = reasons(nn.ConvTranspose2d(2, 2, kernel, stride, padding, extra), 1, 2, 3, 4)
        assert reason.endswith(f"output_padding [{extra}, {extra}]: no window reaches the end")
    for kernel, stride, padding, extra in ((3, 2, 1, 1), (2, 3, 0, 1), (4, 2, 1, 0)):
        assert reasons(nn.ConvTranspose2d(2, 2, kernel, stride, padding, extra), 1, 2, 3, 4) == []


@pytest.mark.parametrize("shape", [(255, 2, 3), (1, 63, 2, 3), (15, 4)])
def test_integers_are_compared_along_any_axis(agree: Callable[..., Any], shape: tuple[int, ...]) -> None:
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.int32).reshape(shape) % 97 - 40
    for axis in (0, 1, -1):
        agree(lambda x, axis=axis: (x.amin(axis), x.amax(axis, True)), x)
