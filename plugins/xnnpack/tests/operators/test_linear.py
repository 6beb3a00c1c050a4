"""Matrix products against eager PyTorch, through the stock runtime."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize("shape", [(12,), (4, 12), (2, 5, 12), (1, 2, 1, 2, 3, 12)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear_agrees_with_eager(shape, bias, matches_eager):
    lowered = matches_eager(nn.Linear(12, 7, bias=bias), torch.randn(shape), terms=12)
    assert lowered.nodes == {"FullyConnected": 1}


def test_computed_weights_agree_with_eager(matches_eager):
    inputs = torch.randn(4, 12), torch.randn(7, 12), torch.randn(7)
    matches_eager(F.linear, *inputs, terms=12)


def test_a_transposed_computed_weight_is_not_transposed_again(matches_eager):
    lowered = matches_eager(lambda x, w: F.linear(x, w.t()), torch.randn(4, 12), torch.randn(12, 7), terms=12)
    assert lowered.nodes == {"FullyConnected": 1}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((4,), (4, 5)),
        ((5, 4), (4,)),
        ((2, 3, 4), (4,)),
        ((5, 4), (4, 3)),
        ((2, 3, 4), (4, 5)),
        ((4,), (2, 4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)),
        ((2, 3, 4, 5), (2, 3, 5, 6)),
        ((1, 3, 4, 5), (2, 1, 5, 6)),
        ((1, 2, 1, 2, 3, 4), (2, 1, 2, 4, 5)),
    ],
)
def test_matmul_broadcasts_like_eager(left, right, matches_eager):
    matches_eager(torch.matmul, torch.randn(left), torch.randn(right), terms=right[-2] if len(right) > 1 else right[0])


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_constant_operand_of_a_batched_product_agrees_with_eager(side, matches_eager):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.constant = nn.Parameter(torch.randn(2, 4, 4))

        def forward(self, x):
            return x @ self.constant if side == "right" else self.constant @ x

    matches_eager(Product(), torch.randn(2, 4, 4), terms=4)


def test_a_transposed_value_times_itself_agrees_with_eager(matches_eager):
    # The stock runtime is wrong if both operands of its product are one transposed value.
    def square(x):
        y = (x + 1).transpose(-1, -2).reshape(2, 4, 4)
        return torch.matmul(y, y)

    lowered = matches_eager(square, torch.randn(2, 4, 4), terms=4)
    assert lowered.nodes["BatchMatrixMultiply"] == 1


def test_a_constant_matrix_on_the_right_becomes_a_filter(matches_eager):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.randn(12, 5))

        def forward(self, x):
            return x @ self.matrix

    assert matches_eager(Product(), torch.randn(2, 3, 12), terms=12).nodes == {"FullyConnected": 1}


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.mm, [(4, 6), (6, 5)]),
        (torch.bmm, [(3, 4, 6), (3, 6, 5)]),
        (torch.addmm, [(5,), (4, 6), (6, 5)]),
        (torch.addmm, [(4, 5), (4, 6), (6, 5)]),
        (torch.addmm, [(1, 5), (4, 6), (6, 5)]),
        (torch.baddbmm, [(3, 4, 5), (3, 4, 6), (3, 6, 5)]),
    ],
)
def test_the_older_products_agree_with_eager(function, shapes, matches_eager):
    matches_eager(function, *(torch.randn(shape) for shape in shapes), terms=6)


def test_a_transposed_right_operand_costs_no_transpose(matches_eager):
    inputs = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 6, 5)
    lowered = matches_eager(lambda a, b: a @ b.transpose(-1, -2), *inputs, terms=5)
    assert lowered.nodes == {"BatchMatrixMultiply": 1}


def test_attention_transposes_to_heads_and_back_alone(matches_eager):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.projections = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))

        def forward(self, x):
            query, key, value = (layer(x).view(1, 9, 4, 8).transpose(1, 2) for layer in self.projections[:3])
            result = F.scaled_dot_product_attention(query, key, value)
            return self.projections[3](result.transpose(1, 2).reshape(1, 9, 32))

    lowered = matches_eager(Attention(), torch.randn(1, 9, 32), terms=32)
    # Queries, keys, values and the result: the keys are then multiplied as stored.
    assert lowered.nodes["StaticTranspose"] == 4


def test_a_linear_layer_on_channels_last_features_needs_no_transpose_between(matches_eager):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.linear = nn.Conv2d(3, 8, 3), nn.Linear(8, 8)
            self.norm = nn.LayerNorm(8)

        def forward(self, x):
            features = self.convolution(x).permute(0, 2, 3, 1)
            return self.linear(self.norm(features)).permute(0, 3, 1, 2)

    lowered = matches_eager(Block(), torch.randn(1, 3, 6, 7), terms=32)
    assert lowered.nodes["StaticTranspose"] == 2  # the input, the output
