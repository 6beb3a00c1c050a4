"""Operators of all other families against PyTorch in double precision, on the oldest, the usual and a new target."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_conformance.testkit import compare, lower
from delegatekit_toolkit.accuracy import tolerance

SINGLE = {"precision": "float32"}
#: Two layers whose longest sums are those of a convolution: 3 channels of 3 x 3.
TOLERANCE = tolerance("float32", "float32", 27, depth=2)
#: Sums are float32 and rounded once, in each of two layers.
HALF_TOLERANCE = tolerance("float32", "float16", 1, depth=2)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * sum(shape)))


def whole_modules(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules).eval()


class Outputs(nn.Module):
    """The outputs of several modules."""

    def __init__(self, modules: tuple[nn.Module, ...]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, x: torch.Tensor) -> Any:
        return [part(x) for part in self.parts]


class OnlyBias(nn.Module):
    """A layer norm with a bias alone, and a group norm with computed parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.linspace(-1, 1, 6))

    def forward(self, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return F.layer_norm(x, (6,), None, self.bias), F.group_norm(x, 2, weight, -weight)


def whole_outputs(*modules: nn.Module) -> nn.Module:
    return Outputs(modules).eval()


INDICES = torch.tensor([[0, -1], [2, 1]])
ROWS = torch.tensor([1, 3])
MASK = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]], dtype=torch.bool)

CASES: dict[str, tuple[Any, tuple[torch.Tensor, ...]]] = {
    "reductions": (
        lambda x: (x.sum(), x.mean(1), x.amax(0, keepdim=True), x.min(), x.prod(1), x.var(1), x.std(), x.cumsum(1)),
        (drawn(4, 6),),
    ),
    "positions": (lambda x: (x.argmax(1), x.argmin(), x.argmax(0, keepdim=True)), (drawn(4, 6),)),
    "truths": (lambda x: ((x > 0).any(1), (x > 0).all(), (x > 0).sum(1), x.bool(), x.int()), (drawn(4, 6),)),
    "softmax": (lambda x: (x.softmax(0), x.log_softmax(-1)), (drawn(4, 6),)),
    "views": (
        lambda x: (
            x.reshape(2, 12) + 1,
            x.t() * 2,
            x.unsqueeze(0) + 1,
            x[:, None].expand(4, 3, 6) * 2,
            x.repeat(2, 1) + 1,
        ),
        (drawn(4, 6),),
    ),
    "parts": (
        lambda x: (
            x[1:3] + 1,
            x[:, ::2] + 1,
            x[2] + 1,
            x.flip(1) + 1,
            torch.cat([x, x * 2], 1),
            torch.stack([x, x + 1]),
        ),
        (drawn(4, 6),),
    ),
    "written parts": (
        lambda x, y: (torch.slice_scatter(x * 2, y, 1, 1, 3), torch.select_scatter(x * 2, y[:, 0], 1, 2)),
        (drawn(3, 4), drawn(3, 2)),
    ),
    "padding": (
        lambda x: (
            F.pad(x, (1, 2), value=3.0) * 2,
            F.pad(x + 1, (1, 2, 3, 0)),
            F.pad(x * 2, (-1, 0)),
            F.pad(x[None] * 2, (2, 1), mode="reflect"),
            F.pad(x[None] * 2, (2, 1), mode="replicate"),
        ),
        (drawn(4, 6),),
    ),
    "indices without axes": (
        lambda x, i: (
            torch.ops.aten.index.Tensor(x[0, 0] * 2, [i[0, 0]]),
            torch.ops.aten.index.Tensor(x * 2, [i[0, 0], i[0, 1]]),
            torch.ops.aten.index.Tensor(x * 2, [i[0, 0], i[0, 1], i[1, 0]]),
        ),
        (drawn(4, 6, 5), INDICES),
    ),
    "one index": (lambda x, i: (x[:, i] * 2, (x > 0)[i].logical_not()), (drawn(4, 6, 5), INDICES)),
    "several indices": (
        lambda x, i, j: (x[i, j] * 2, x[:, i, j] * 2, x[i, :, j] * 2),
        (drawn(4, 6, 5), INDICES, ROWS),
    ),
    "gather": (
        lambda x, i, j: (torch.gather(x * 2, 1, i[:, None, :2].abs().expand(2, 3, 2)), (x * 2).index_select(2, j)),
        (drawn(4, 6, 5), INDICES, ROWS),
    ),
    "embedding": (whole_modules(nn.Embedding(20, 8), nn.Linear(8, 4)), (torch.tensor([[1, 5, 19]]),)),
    "linear": (whole_modules(nn.Linear(6, 3), nn.Linear(3, 5, bias=False)), (drawn(2, 3, 4, 6),)),
    "linear of a vector": (whole_modules(nn.Linear(6, 3)), (drawn(6),)),
    "computed weights": (F.linear, (drawn(2, 6), drawn(3, 6))),
    "products": (
        lambda x: (x @ x.t(), torch.addmm(x[:, :4], x, x.t(), beta=0.5, alpha=2.0), torch.bmm(x[None], x.t()[None])),
        (drawn(4, 6),),
    ),
    "attention": (
        lambda q: (F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, scale=0.3)),
        (drawn(1, 2, 4, 8),),
    ),
    "causal attention": (
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        (drawn(1, 2, 4, 8),),
    ),
    "masked attention": (
        lambda q, m: (
            F.scaled_dot_product_attention(q, q, q, attn_mask=m),
            F.scaled_dot_product_attention(q, q, q, attn_mask=m > 0),
        ),
        (drawn(1, 2, 4, 8), drawn(4, 4)),
    ),
    "attention with a hidden row": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        (drawn(1, 2, 4, 8), MASK),
    ),
    "convolution over one axis": (nn.Conv1d(4, 8, 3, padding=1, stride=2, groups=2), (drawn(2, 4, 9),)),
    "convolution": (whole_modules(nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, groups=8)), (drawn(2, 3, 9, 9),)),
    "convolution over three axes": (nn.Conv3d(2, 3, 3, padding=1), (drawn(1, 2, 4, 5, 6),)),
    "convolution without a batch": (nn.Conv2d(3, 4, 3), (drawn(3, 8, 8),)),
    "transposed convolution": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), (drawn(2, 4, 5, 6),)),
    "transposed convolution over one axis": (nn.ConvTranspose1d(4, 6, 4, 2, 1), (drawn(2, 4, 5),)),
    "largest of windows": (
        lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True)),
        (drawn(2, 3, 10, 8),),
    ),
    "averages of windows": (
        lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(x, 3, 2, ceil_mode=True, count_include_pad=False),
            F.adaptive_avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 1),
        ),
        (drawn(2, 3, 10, 8),),
    ),
    "windows over one axis": (lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 2, 1)), (drawn(2, 3, 10),)),
    "resizing": (
        lambda x: (
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(9, 15), mode="bilinear", align_corners=True),
            F.interpolate(x, size=(9, 15), mode="bilinear"),
            F.pixel_shuffle(x, 2),
        ),
        (drawn(2, 4, 4, 6),),
    ),
    "sequences": (nn.LSTM(5, 7, num_layers=2, bidirectional=True, batch_first=True).eval(), (drawn(3, 4, 5),)),
    "sequences without biases": (nn.LSTM(5, 7, bias=False).eval(), (drawn(4, 3, 5),)),
    "plain recurrent networks": (
        whole_outputs(nn.RNN(5, 7, num_layers=2, bidirectional=True), nn.RNN(5, 7, nonlinearity="relu", bias=False)),
        (drawn(4, 3, 5),),
    ),
    "gated recurrent networks": (
        whole_outputs(nn.GRU(5, 7, num_layers=2, bidirectional=True, batch_first=True), nn.GRU(5, 7, bias=False)),
        (drawn(4, 3, 5),),
    ),
    "windows over three axes": (
        lambda x: (
            F.max_pool3d(x, 2),
            F.max_pool3d(x, 3, 2, 1, ceil_mode=True),
            F.avg_pool3d(x, 2, padding=1),
            F.avg_pool3d(x, 3, 2, 1, count_include_pad=False),
            F.adaptive_avg_pool3d(x, (2, 1, 3)),
            F.adaptive_avg_pool3d(x, 3),
        ),
        (drawn(1, 2, 4, 5, 6),),
    ),
    "windows of different sizes": (
        lambda x: (F.adaptive_avg_pool2d(x, (3, 5)), F.adaptive_avg_pool1d(x[:, :, 0], 3), F.adaptive_max_pool2d(x, 2)),
        (drawn(2, 3, 10, 8),),
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
    "padding with what is there": (
        lambda x: (
            F.pad(x, (1, 2, 0, 1, 2, 1), "reflect"),
            F.pad(x, (1, 2, 0, 1, 2, 1), "replicate"),
            F.pad(x, (0, 0, 0, 0, 1, 1), "replicate"),
            F.pad(x[0, 0], (1, 2), "reflect"),
            F.pad(x[0], (1, 2, 1, 1), "circular") + 1,
        ),
        (drawn(1, 2, 4, 5, 6),),
    ),
    "extremes and their places": (
        lambda x: (*x.max(1), *x.min(0, keepdim=True), *torch.var_mean(x, 1)),
        (drawn(4, 6),),
    ),
    "diagonals and windows": (
        lambda x: (x.diagonal(1) + 1, x.diagonal(-2, 2, 0) + 1, x.unfold(1, 3, 2) + 1, x.diag_embed().sum(0)),
        (drawn(4, 6, 5),),
    ),
    "sums of windows": (lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=2), (drawn(2, 3, 10, 8),)),
    "sums of products": (
        lambda x, y: torch.addbmm(x[0] @ y[0], x, y, beta=0.5, alpha=2),
        (drawn(3, 4, 5), drawn(3, 5, 2)),
    ),
    "norms with half of their parameters": (
        OnlyBias(),
        (drawn(2, 4, 6), drawn(4)),
    ),
    "rolls": (lambda x: (x.roll(2, 1) + 1, x.roll((-1, 9), (0, 1)) + 1, x.roll(5) + 1), (drawn(4, 6),)),
    "distances": (
        lambda x, y: (
            *(torch.cdist(x, y, p) for p in (0.0, 1.0, 2.0, 3.0, float("inf"))),
            *(torch.cdist(x, y[0], 2.0), torch.cdist(x[:1], y, 1.0), torch.cdist(x[0], y, 3.0)),
        ),
        (drawn(2, 4, 6), drawn(2, 3, 6)),
    ),
    "sizes of vectors": (
        lambda x: (x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 1, 0, keepdim=True), x.norm(float("inf"), 1)),
        (drawn(4, 6),),
    ),
    "deviations": (lambda x: (x.std(1), x.std(0, correction=0), (300 * x).std()), (drawn(4, 6),)),
    "norms": (
        whole_modules(nn.GroupNorm(2, 4), nn.LayerNorm([4, 6]), nn.RMSNorm(6), nn.InstanceNorm2d(4), nn.BatchNorm2d(4)),
        (drawn(2, 4, 4, 6),),
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("target", ["ios15", "ios17", "ios18"])
@pytest.mark.parametrize("name", CASES)
def test_operators_agree_with_double_precision(name: str, target: str) -> None:
    model, inputs = CASES[name]
    options = {"precision": "float32", "target": target}
    compare(lower(model, *inputs, backend="coreml", options=options), tolerance=TOLERANCE)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_operators_agree_in_half_precision(name: str) -> None:
    model, inputs = CASES[name]
    lowered = lower(model, *inputs, backend="coreml")
    compare(lowered, tolerance=HALF_TOLERANCE)


def test_pixels_become_channels_from_ios16_on() -> None:
    lowered = lower(lambda x: F.pixel_unshuffle(x, 2) * 2, drawn(2, 3, 4, 6), backend="coreml", options=SINGLE)
    compare(lowered, tolerance=TOLERANCE)


def test_squares_of_large_numbers_stay_within_half_precision() -> None:
    lowered = lower(nn.RMSNorm(8).eval(), 3000 * drawn(2, 8), backend="coreml")
    compare(lowered, tolerance=HALF_TOLERANCE)


def test_rows_of_halves_have_pytorchs_epsilon() -> None:
    lowered = lower(lambda x: F.rms_norm(x, (4,)), torch.full((2, 4), 1e-3).half(), backend="coreml")
    torch.testing.assert_close(lowered.run(), lowered.eager())
