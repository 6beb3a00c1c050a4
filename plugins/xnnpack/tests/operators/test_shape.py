"""Views, permutations, slices, concatenation and padding: bit-equal to eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from delegatekit_xnnpack.operators.spatial import pattern_of


def _numbers(*shape):
    return torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)


# Each function ends in a negation: without a node that computes, the core would not make a delegate.
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(6, 2, 2),
        lambda x: x.reshape(-1),
        lambda x: x.flatten(1),
        lambda x: x.unsqueeze(0).unsqueeze(-1),
        lambda x: x.unsqueeze(2).squeeze(2),
        lambda x: x[:1].squeeze(),
        lambda x: x.permute(2, 0, 1),
        lambda x: x.transpose(0, 2).reshape(4, 6),
        lambda x: x.permute(2, 1, 0).permute(1, 0, 2),
        lambda x: x.permute(2, 0, 1).reshape(2, 2, 2, 3).permute(3, 1, 0, 2).reshape(6, 4),
        lambda x: x[:, 1:],
        lambda x: x[:, -2:-1, 1:3],
        lambda x: x[1],
        lambda x: x[:, -1],
        lambda x: x[:, ::2],
        lambda x: x[:, 1::2, ::3],
        lambda x: torch.cat(x.split([1, 2], 1)[::-1], 1),
        lambda x: torch.cat(x.chunk(2, 2)[::-1], 2),
        lambda x: torch.stack(x.unbind(0)[::-1], 1),
        lambda x: x.roll((1, -1), (1, 2)),
        lambda x: x.index_select(1, torch.tensor([2, 0, 1, 1])),
        lambda x: torch.cat([x] * 2, -1),
        lambda x: torch.cat([x] * 5, 0),
        lambda x: torch.cat([x, x + 1, x, x + 2, x, x + 3, x], 1),
        lambda x: torch.cat([x * i for i in range(26)], 1),
        lambda x: F.pad(x, (1, 2)),
        lambda x: F.pad(x, (0, 0, 3, 1, 1, 0), value=2.5),
        lambda x: F.pad(x, (-1, 2, 1, -1), value=2.5),
        lambda x: F.pad(x, (-1, -1)),
        lambda x: F.pad(x, (1, 1), value=float("-inf")),
    ],
)
def test_moved_elements_are_equal(function, lower_whole):
    x = _numbers(2, 3, 4)
    lowered = lower_whole(lambda x: function(x).neg(), x)
    assert torch.equal(lowered.run()[0], function(x).neg())


@pytest.mark.parametrize("factor", [2, 3])
def test_pixel_shuffle_is_equal(factor, lower_whole):
    x = _numbers(2, 18 if factor == 3 else 8, 3, 4)
    lowered = lower_whole(lambda x: F.pixel_shuffle(x, factor).neg(), x)
    assert torch.equal(lowered.run()[0], F.pixel_shuffle(x, factor).neg())


def test_pixel_shuffle_between_convolutions_costs_one_transpose(matches_eager):
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.PixelShuffle(2), nn.Conv2d(2, 3, 3))
    lowered = matches_eager(module, torch.randn(1, 3, 6, 6), terms=27)
    assert lowered.nodes["StaticTranspose"] == 3


def test_five_parts_are_joined_by_each_node(lower_whole):
    lowered = lower_whole(lambda x: torch.cat([x * i for i in range(11)], 1), _numbers(2, 3))
    assert lowered.nodes["Concatenate5"] == 2
    assert lowered.nodes["Concatenate3"] == 1


def test_inverse_permutations_leave_no_transpose(lower_whole):
    lowered = lower_whole(lambda x: x.permute(2, 0, 1).neg().abs().permute(1, 2, 0), _numbers(2, 3, 4))
    assert lowered.nodes == {"Negate": 1, "Abs": 1}


def test_moving_axes_of_size_one_is_a_reshape(lower_whole):
    lowered = lower_whole(lambda x: x.permute(2, 0, 3, 1).neg(), _numbers(1, 1, 5, 6))
    assert lowered.nodes == {"Negate": 1, "StaticReshape": 1}


def test_chains_of_views_are_one_reshape(lower_whole):
    lowered = lower_whole(
        lambda x: x.neg().reshape(6, 4).unsqueeze(0).reshape(3, 8).abs().reshape(24), _numbers(2, 3, 4)
    )
    assert lowered.nodes == {"Negate": 1, "Abs": 1, "StaticReshape": 1}


def test_a_returned_input_and_a_result_returned_twice_are_copied(lower_whole):
    x = _numbers(2, 3)

    def function(x):
        y = x.neg()
        return x, y, y

    results = lower_whole(function, x).run()
    assert [torch.equal(result, want) for result, want in zip(results, function(x), strict=True)] == [True] * 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.flip(2),
        lambda x: x.flip(0, -1),
        lambda x: x.sum().flip(0) + 1,  # without axes
        lambda x: x.roll((1, -2), (2, 3)),
        lambda x: x[:, [2, 0, 1]],
        lambda x: x[:, :, [[3], [0], [1]], [2, 2, 3, 4]],
        lambda x: x[-1:, [-1]],
        lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"),
        lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"),
        lambda x: F.pad(x, (2, 1, 1, 0), mode="circular"),
        lambda x: x.slice_scatter(x[:, 1:] * 0.5, 1, 1, 3),
        lambda x: x.slice_scatter(x[..., :2] + 1.0, 3, 0, 2),
        lambda x: x.select_scatter(x[:, 0] + 1.0, 1, -1),
        lambda x: F.pixel_unshuffle(x[:, :, :4], 2),
        lambda x: F.interpolate(x, size=(7, 9)),
        lambda x: F.interpolate(x[:, :, :4], scale_factor=1.5),
        lambda x: F.interpolate(x[:, :, :4], scale_factor=0.5),
        lambda x: F.interpolate(x[0], scale_factor=2.0),
    ],
)
def test_selections_beside_an_operator_are_equal_to_eager(function, lower_whole):
    x = torch.randn(2, 3, 5, 6)
    lowered = lower_whole(lambda x: -function(x), x)
    assert torch.equal(lowered.run()[0], -function(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "source",
    [torch.tensor(3), torch.tensor([7, 2**24 + 1, 70000]), torch.tensor([0.1, 1e-5, 1.0]).double()],
    ids=["a number", "integers", "float64"],
)
def test_constants_of_other_types_are_copied_over_a_tensor(source, dtype, lower_whole):
    def function(x):
        return (x * 2).copy_(source)

    x = torch.randn(2, 3).to(dtype)
    assert torch.equal(lower_whole(function, x).run()[0], function(x))


def test_a_periodic_selection_is_cut_by_period():
    assert pattern_of([0, 0, 1, 2, 2, 3], 4) == ([0, 0, 1], 2)
    assert pattern_of([0, 2, 4], 6) == ([0], 2)
    assert pattern_of([0, 0, 1, 2, 3], 4) == ([0, 0, 1, 2, 3], 4)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda x: -x.flip(1), "30 elements are reversed"),
        (lambda x: x[[0, 1], [0, 1]], "of several axes together: XNNPACK has no gather"),
        (lambda x: x[:, list(range(0, 30, 1))[::-1]], "30 separate runs of indices"),
        (lambda x: x[:, (x[0] > 0).long()], "is int64: only float32, float16 and bfloat16 are taken"),
        (lambda x: x.slice_scatter(x[:, ::2], 1, 0, 30, 2), "step 2: XNNPACK's slices have no step"),
        (lambda x: F.pixel_unshuffle(x.view(1, 2, 30), 2), "rank 3: only (N, C, H, W) is taken"),
    ],
)
def test_selections_that_are_refused_say_why(model, reason, refusals):
    assert any(reason in why for why in refusals(model, torch.randn(2, 30)))
