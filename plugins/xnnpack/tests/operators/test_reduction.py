"""Reductions, softmax and normalization against eager PyTorch, through the stock runtime."""

from __future__ import annotations

import math

import pytest
import torch
from processors import needs_avx512
from torch import nn

AXES = [(0,), (1,), (2,), (3,), (0, 1), (1, 2), (2, 3), (1, 3), (0, 2), (0, 3), (1, 2, 3), (0, 1, 2, 3)]


def _terms(shape, axes):
    return math.prod(shape[axis] for axis in axes)


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("function", [torch.mean, torch.sum], ids=lambda function: function.__name__)
def test_means_and_sums_agree_with_eager(function, axes, keepdim, matches_eager):
    shape = (2, 5, 4, 6)
    lowered = matches_eager(lambda x: function(x, axes, keepdim), torch.randn(shape), terms=_terms(shape, axes))
    assert lowered.nodes["StaticTranspose"] == 0


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_extremes_are_equal_to_eager(axes, lower_whole):
    x = torch.randn(2, 5, 4, 6)
    results = lower_whole(lambda x: (x.amax(axes, True), x.amin(axes, True)), x).run()
    assert torch.equal(results[0], x.amax(axes, True))
    assert torch.equal(results[1], x.amin(axes, True))


def test_results_of_rank_0_agree_with_eager(matches_eager):
    matches_eager(
        lambda x: (x.mean(), x.sum(), x.amax(), x.amin(), x.var(), x * x.mean(), x[0, 1, 2, 3] - x.amax()),
        torch.randn(2, 5, 4, 6),
        terms=240,
    )


@pytest.mark.parametrize("function", [torch.sum, torch.mean, torch.amax, torch.amin], ids=lambda f: f.__name__)
def test_reductions_of_rank_0_are_the_number_itself(function, lower_whole):
    x = torch.tensor(-1.5)
    assert torch.equal(lower_whole(lambda x: 2 * function(x, 0), x).run()[0], torch.tensor(-3.0))


@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 3)], ids=str)
def test_reductions_of_channels_last_features_need_no_transpose(axes, matches_eager):
    class Reduced(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(3, 6, 1)

        def forward(self, x):
            y = self.convolution(x)
            return y.mean(axes, True), y.sum(axes, True)

    lowered = matches_eager(Reduced(), torch.randn(1, 3, 5, 4), terms=64)
    long_outputs = 0 if axes in [(2, 3), (1, 3)] else 2
    assert lowered.nodes["StaticTranspose"] <= 1 + long_outputs


@pytest.mark.parametrize("count", [1500, 4099, 10000])
def test_long_rows_are_summed_within_the_rounding_of_their_length(count, matches_eager):
    matches_eager(lambda x: (x.mean(1, True), x.sum(1, True)), torch.rand(3, count) / count, terms=count)


def test_a_long_row_of_equal_numbers_keeps_its_mean(lower_whole):
    lowered = lower_whole(lambda x: x.mean(1, True), torch.full((1, 65536), 0.1))
    assert abs(lowered.run()[0].item() - 0.1) < 1e-6


@pytest.mark.parametrize("correction", [0, 1])
@pytest.mark.parametrize("axes", [(1,), (3,), (2, 3)], ids=str)
def test_variance_agrees_with_eager(axes, correction, matches_eager):
    shape = (2, 5, 4, 6)
    operator = torch.ops.aten.var.correction
    matches_eager(
        lambda x: operator(x, axes, correction=correction, keepdim=True), torch.randn(shape), terms=_terms(shape, axes)
    )


@pytest.mark.parametrize("dim", range(-4, 4))
def test_softmax_over_any_axis_agrees_with_eager(dim, matches_eager):
    matches_eager(lambda x: x.softmax(dim), 4.0 * torch.randn(2, 3, 4, 5), terms=5)


def test_softmax_of_masked_scores_agrees_with_eager(matches_eager):
    scores = torch.randn(2, 3, 4)
    scores[:, :, 2] = -math.inf
    scores[0, 0] = -1e30
    matches_eager(lambda x: x.softmax(-1), scores, terms=4)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.LayerNorm(12), (2, 5, 12)),
        (nn.LayerNorm(12, elementwise_affine=False), (12,)),
        (nn.LayerNorm((4, 6)), (2, 5, 4, 6)),
        (nn.LayerNorm(12, bias=False), (3, 12)),
        (nn.GroupNorm(3, 6), (2, 6, 4, 5)),
        (nn.GroupNorm(6, 6), (2, 6, 7)),
        (nn.GroupNorm(1, 6, affine=False), (2, 6)),
        (nn.BatchNorm2d(6), (2, 6, 3, 4)),
    ],
    ids=str,
)
def test_normalizations_agree_with_eager(module, shape, matches_eager):
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    matches_eager(module, torch.randn(shape), terms=120)


def test_layer_norm_of_shifted_features_agrees_with_eager(matches_eager):
    # A variance computed as mean of squares minus square of mean would lose these digits.
    matches_eager(nn.LayerNorm(64), torch.randn(3, 64) + 100.0, terms=64 * 100 * 100)


def test_group_norm_between_convolutions_stays_channels_last(matches_eager):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 4, 3))
    lowered = matches_eager(module, torch.randn(1, 3, 8, 7), terms=120)
    assert lowered.nodes["StaticTranspose"] == 2


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_logarithms_of_softmax_agree_with_eager(dim, matches_eager):
    matches_eager(
        lambda x: (x.log_softmax(dim), x.logsumexp(dim), x.logsumexp(dim, True)), 8 * torch.randn(3, 4, 5, 6), terms=6
    )


@needs_avx512
def test_logarithms_of_sums_of_infinities_are_infinite(lower_whole):
    x = torch.tensor([[math.inf, 0.0], [-math.inf, -math.inf], [-math.inf, 1.0]])
    assert torch.equal(lower_whole(lambda x: x.logsumexp(1), x).run()[0], torch.tensor([math.inf, -math.inf, 1.0]))


@pytest.mark.parametrize("count", [1, 255, 256, 1000, 1009, 32000])
def test_extremes_of_long_rows_are_equal_to_eager(count, lower_whole):
    x = torch.randn(3, count)
    results = lower_whole(lambda x: (x.amax(1), x.amin(1), x.max(), x.min(), x.max(1)[0]), x).run()
    for result, expected in zip(results, (x.amax(1), x.amin(1), x.max(), x.min(), x.amax(1)), strict=True):
        assert torch.equal(result, expected)
