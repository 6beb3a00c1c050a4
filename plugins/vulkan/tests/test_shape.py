"""Operators that move elements: results are bit-equal to PyTorch's."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from delegatekit_conformance.testkit import compare, lower

pytestmark = pytest.mark.needs_device


def numbered(*shape: int) -> torch.Tensor:
    """Elements that are all different."""
    return torch.arange(1.0, torch.Size(shape).numel() + 1).reshape(shape)


MOVES = {
    "views": lambda x: (x.reshape(6, 20), x.flatten(), x.view(2, 3, 2, 2, 5), x.unsqueeze(1), x[None, :, None]),
    "squeezes": lambda x: (x[:1].squeeze(0), x[:, :1, :1].squeeze(), x.unsqueeze(-1).squeeze(-1)),
    "permutations": lambda x: (x.permute(2, 0, 1), x.transpose(0, 1), x.transpose(1, 2), x.mT, x.permute(0, 2, 1)),
    "expansions": lambda x: (x[:1].expand(4, 3, 20), x.unsqueeze(1).expand(2, 5, 3, 20), x[:, :1].expand(2, 7, 20)),
    "repetitions": lambda x: (x.repeat(2, 1, 3), x.repeat(2, 1, 1, 1), x.repeat_interleave(3, 1), x.tile(2)),
    "selections": lambda x: (x[1], x[:, -1], x[..., 7], x[0, 1], x[1, 2, 3]),
    "slices": lambda x: (x[:, 1:], x[..., 3:7], x[..., ::2], x[:, :, 1:-1:3], x[..., 4:8], x[1:, :2, :5], x[:, -2:]),
    "splits": lambda x: (*x.split([5, 15], 2), *x.chunk(3, 1), *x.unbind(0), *x.split(8, 2)),
    "joins": lambda x: (torch.cat([x, x + 0, x], 0), torch.cat([x, x[:, :1]], 1), torch.cat([x[..., :3], x], 2)),
    "stacks": lambda x: (torch.stack([x, -x]), torch.stack([x, -x], 1), torch.stack([x, -x], -1)),
    "flips": lambda x: (x.flip(0), x.flip(2), x.flip(0, 1, 2), x.rot90(1, [1, 2]), x.fliplr()),
    "rolls": lambda x: (x.roll(1, 0), x.roll(-3, 2), x.roll((1, 2), (0, 1))),
    "windows": lambda x: (x.unfold(2, 4, 2), x.unfold(1, 2, 1), x.unfold(0, 2, 3)),
    "scattered slices": lambda x: (
        torch.slice_scatter(x, -x[:, :1], 1, 1, 2),
        torch.select_scatter(x, -x[0], 0, 1),
        torch.slice_scatter(x, -x[..., :4], 2, 0, 4),
    ),
    "triangles": lambda x: (x.tril(), x.triu(1), x.masked_fill(torch.arange(20) > 9, 0.5)),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("shape", [(2, 3, 20)])
def test_elements_come_where_they_belong(name, shape):
    # Something must be computed: moves alone are no delegate.
    compare(lower(lambda x: MOVES[name](x * 2), numbered(*shape), backend="vulkan"))


@pytest.mark.parametrize("name", ["permutations", "slices", "joins", "selections", "repetitions", "stacks"])
def test_integers_and_truth_values_are_moved(name):
    x = torch.arange(120, dtype=torch.int32).reshape(2, 3, 20)
    compare(lower(lambda x: MOVES[name](x + 1), x, backend="vulkan"))


@pytest.mark.parametrize("name", ["permutations", "slices", "selections", "repetitions", "flips"])
def test_truth_values_are_moved(name):
    x = numbered(2, 3, 20)
    compare(lower(lambda x: MOVES[name](x > 50), x, backend="vulkan"))


def test_truth_values_are_joined():
    compare(lower(lambda x: torch.cat([x > 3, x < 5], 1), numbered(3, 5), backend="vulkan"))


@pytest.mark.parametrize("name", ["joins", "permutations", "expansions"])
def test_half_precision_is_moved(name):
    # All numbers of the example are exact in half precision.
    compare(lower(lambda x: MOVES[name](x * 2), numbered(2, 3, 20), backend="vulkan", options={"fp16": True}))


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (17, 1), (3, 17), (4, 8)])
def test_odd_sizes_are_moved(shape):
    def function(x):
        y = x * 2
        return y.mT, torch.cat([y, y], 1), y.repeat(2, 3), y.flip(1), y[:, :1], y.expand(2, *x.shape), y.reshape(-1)

    compare(lower(function, numbered(*shape), backend="vulkan"))


@pytest.mark.parametrize("rank", [5, 6, 8])
def test_many_axes_are_moved(rank):
    shape = (2, 3, 2, 1, 3, 2, 2, 4)[-rank:]

    def function(x):
        y = x * 2
        order = tuple(reversed(range(rank)))
        return y.permute(order), torch.cat([y, y], 1), torch.cat([y, y], -1), y.select(1, 0), y.narrow(-1, 1, 2)

    compare(lower(function, numbered(*shape), backend="vulkan"))


def test_views_of_inputs_and_constants_are_outputs():
    constant = numbered(2, 3)

    def function(x):
        return x.reshape(6), constant.mT + 0, x * 2, (x * 2).reshape(3, 2), constant

    compare(lower(function, numbered(2, 3), backend="vulkan", whole=False))


def test_constants_are_broadcast_and_joined():
    constant = numbered(1, 5)
    compare(lower(lambda x: torch.cat([x * 2, constant.expand(3, 5)], 0), numbered(2, 5), backend="vulkan"))


def test_planes_are_shuffled_by_views():
    def function(x):
        return F.channel_shuffle(x * 2, 3)

    compare(lower(function, numbered(2, 6, 4, 5), backend="vulkan"))


def test_windows_of_a_single_number_stay_outside():
    compare(lower(lambda x: x.unfold(0, 1, 1).abs(), torch.tensor(-2.0), backend="vulkan", whole=False))
