"""Matrix products and attention, compared with eager PyTorch in double precision, on a device."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from delegatekit_conformance.testkit import compare, lower

pytestmark = pytest.mark.needs_device

#: Float32 sums of a few hundred products; and values are rounded to float16 at each store.
TOLERANCE, HALF = 1e-5, 4e-3


def check(model, *inputs, **settings):
    compare(lower(model, *inputs, backend="vulkan", **settings), tolerance=TOLERANCE)


def check_half(model, *inputs):
    compare(lower(model, *inputs, backend="vulkan", options={"fp16": True}), tolerance=HALF)


class Product(nn.Module):
    """A product with a constant on one side; module parameters follow to double precision."""

    def __init__(self, *, left=None, right=None):
        super().__init__()
        self.left = None if left is None else nn.Parameter(left)
        self.right = None if right is None else nn.Parameter(right)

    def forward(self, x):
        return x @ self.right if self.left is None else self.left @ x


@pytest.mark.parametrize(
    ("shape", "columns", "bias"),
    [
        ((3, 17), 5, True),
        ((1, 64), 10, False),
        ((64,), 9, True),
        ((2, 7, 16), 24, True),
        ((2, 3, 5, 12), 9, True),
        ((70, 67), 131, True),
    ],
    ids=str,
)
def test_linear_layers_agree_with_eager(shape, columns, bias):
    model, x = nn.Linear(shape[-1], columns, bias=bias), torch.randn(shape)
    check(model, x)
    check_half(model, x)


def test_linear_layers_with_computed_weights_agree_with_eager():
    check(nn.functional.linear, torch.randn(2, 4, 6), torch.randn(5, 6), torch.randn(5))


@pytest.mark.parametrize("sizes", [(1, 5, 3), (9, 70, 13), (17, 8, 12), (100, 67, 101)], ids=str)
def test_products_of_matrices_agree_with_eager(sizes):
    rows, inner, columns = sizes
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    check(torch.mm, left, right)
    check(Product(right=right), left)
    check(Product(left=left), right)
    # Rounded inputs cause the sum of an error for each product.
    check_half(torch.mm, left / inner**0.5, right)


@pytest.mark.parametrize("sizes", [(1, 3, 5, 2), (3, 9, 8, 12), (2, 65, 67, 70)], ids=str)
def test_batches_of_products_agree_with_eager(sizes):
    batch, rows, inner, columns = sizes
    left, right = torch.randn(batch, rows, inner), torch.randn(batch, inner, columns)
    check(torch.bmm, left, right)
    check(Product(right=right), left)


@pytest.mark.parametrize("shape", [(7,), (5, 1), (5, 7)], ids=str)
def test_scaled_sums_with_products_agree_with_eager(shape):
    left, right = torch.randn(5, 6), torch.randn(6, 7)
    check(lambda a, b, c: torch.addmm(a, b, c, alpha=0.5, beta=2), torch.randn(shape), left, right)
    nothing = torch.full((7,), float("nan"))
    check(lambda a, b, c: torch.addmm(a, b, c, beta=0), nothing, left, right)


def test_batched_sums_with_products_agree_with_eager():
    check(torch.baddbmm, torch.randn(2, 5, 7), torch.randn(2, 5, 6), torch.randn(2, 6, 7))


def test_products_of_sizes_that_change_agree_with_eager():
    rows = torch.export.Dim("rows", max=40)
    model = nn.Sequential(nn.Linear(6, 10), nn.Linear(10, 3))
    lowered = lower(model, torch.randn(9, 6), backend="vulkan", dynamic_shapes=({0: rows},))
    compare(lowered, *[[torch.randn(size, 6)] for size in (1, 9, 40, 2)], tolerance=TOLERANCE)


def test_products_hand_on_infinity_and_nan():
    x = torch.tensor([[1.0, float("inf"), 2.0], [float("nan"), 0.0, 1.0]])
    lowered = lower(torch.mm, x, torch.tensor([[1.0, 0.0], [2.0, -1.0], [0.5, 1.0]]), backend="vulkan")
    torch.testing.assert_close(lowered.run()[0], lowered.eager()[0], equal_nan=True)


def test_large_weights_are_multiplied_in_parts(monkeypatch):
    from delegatekit_vulkan.runtime.kernels import products

    monkeypatch.setattr(products, "_MOST_PACKED", 4096)
    check(nn.Linear(20, 150), torch.randn(3, 20))


@pytest.mark.parametrize("mask", ["none", "causal", "bool"])
def test_scaled_dot_product_attention_is_one_delegate(mask):
    def model(query, key, value):
        hidden = torch.arange(9)[None] > torch.arange(9)[:, None] + 2
        masked = {"attn_mask": ~hidden} if mask == "bool" else {"is_causal": mask == "causal"}
        return nn.functional.scaled_dot_product_attention(query, key, value, **masked)

    check(model, *(torch.randn(2, 3, 9, 8) for _ in range(3)))


def test_layers_of_transformers_are_one_delegate():
    check(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), torch.randn(2, 5, 16))
